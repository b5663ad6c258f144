// The drawing as a file: SVG with its colors, or PNG.

const SHAPES_AND_TEXTS = "path, polygon, ellipse, polyline, text";
const PROPERTIES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family"];
const PNG_SCALE = 2;
// browsers draw no larger image
const MOST_PIXELS = 16_000_000;

// the drawing as the page shows it, independent of the style sheet
function svgText() {
  const copy = svg.cloneNode(true);
  const originals = svg.querySelectorAll(SHAPES_AND_TEXTS);
  copy.querySelectorAll(SHAPES_AND_TEXTS).forEach((element, at) => {
    const style = getComputedStyle(originals[at]);
    for (const name of PROPERTIES) element.setAttribute(name, style.getPropertyValue(name));
    const group = originals[at].parentNode;
    if (getComputedStyle(group).opacity !== "1") element.setAttribute("opacity", getComputedStyle(group).opacity);
  });
  copy.removeAttribute("style");
  const { x, y, width, height } = svg.viewBox.baseVal;
  const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const fill = getComputedStyle(document.body).backgroundColor;
  for (const [name, value] of Object.entries({ x, y, width, height, fill })) back.setAttribute(name, value);
  copy.prepend(back);
  return new XMLSerializer().serializeToString(copy);
}

async function pngBlob() {
  const { width, height } = svg.viewBox.baseVal;
  const scale = Math.min(PNG_SCALE, Math.sqrt(MOST_PIXELS / (width * height)), 16_000 / Math.max(width, height));
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText())}`;
  await image.decode();
  const area = make("canvas");
  Object.assign(area, { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
  area.getContext("2d").drawImage(image, 0, 0, area.width, area.height);
  return new Promise((done) => { area.toBlob(done, "image/png"); });
}

function saveFile(blob, ending) {
  const name = model.title.replace(/[^\w.-]+/g, "_") || "graph";
  const link = make("a", { download: `${name}.${ending}`, href: URL.createObjectURL(blob) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function offerSaving() {
  document.getElementById("save-svg").addEventListener("click", () => {
    if (svg) saveFile(new Blob([svgText()], { type: "image/svg+xml" }), "svg");
  });
  document.getElementById("save-png").addEventListener("click", async () => {
    if (svg) saveFile(await pngBlob(), "png");
  });
}
