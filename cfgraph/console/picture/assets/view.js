// The view: laid out by Graphviz, with panning, zooming, and boxes that open on click.

const canvas = document.getElementById("canvas");
// a large picture is first shown in part, so that its text is readable
const OVERVIEW = 0.6;
const READABLE = 0.75;
// a picture whose width fits at this size is read from top to bottom
const COLUMN = 0.7;
// beyond this, Graphviz takes many seconds
const MOST_BOXES = 800;
const BUDGETS = [BUDGET, 45, 30, 20, 12];
let viz = null;
let drawn = { edges: [], shown: [] };
let place = { x: 0, y: 0, zoom: 1 };
// the size at which the width of the picture fits, or what differs
let fitting = 1;
let svg = null;
let picked = null;

async function loadViz() {
  const packed = Uint8Array.from(atob(document.getElementById("viz").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  viz = await Viz.instance();
}

// draw the most boxes whose text is readable when the page opens
function drawStart() {
  for (const limit of BUDGETS) {
    openSome(limit);
    redraw();
    if (fitting >= COLUMN) return;
  }
  openSome(BUDGETS[2]);
  redraw();
}

// Graphviz computes boxes for Helvetica; another font is scaled to the same width
const SAMPLE = "abcdefghijklmnopqrstuvwxyz_/0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const SAMPLE_WIDTH = 36.733;
const fontScale = remembered(() => {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "100px Helvetica, Arial, sans-serif";
  return Math.min(1, SAMPLE_WIDTH / (pen.measureText(SAMPLE).width / 100));
});

function scaleTexts() {
  const scale = fontScale();
  for (const text of svg.querySelectorAll("text")) text.setAttribute("font-size", (Number(text.getAttribute("font-size")) * scale).toFixed(2));
}

// draw the open boxes; `anchor` is the box that keeps its position
function redraw(anchor) {
  const before = anchor && boxPlace(anchor);
  const start = performance.now();
  drawn = scene();
  const result = viz.renderSVGElement(dotText(drawn));
  if (svg) svg.remove();
  document.getElementById("wait").hidden = true;
  svg = result;
  const { width, height } = svg.viewBox.baseVal;
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  canvas.append(svg);
  scaleTexts();
  nameThings();
  paint();
  const after = before && boxPlace(anchor);
  if (after) move({ x: place.x + before.x - after.x, y: place.y + before.y - after.y });
  else showStart();
  mark();
  markPath();
  const boxes = new Set(drawn.shown.filter(Boolean)).size;
  const took = Math.round(performance.now() - start);
  const contents = boxes === nodes.length ? `${boxes} nodes` : `${boxes} boxes for ${nodes.length} nodes`;
  document.getElementById("status").textContent = `${contents}, ${drawn.edges.length} edges, drawn in ${took} ms`;
  Object.assign(document.body.dataset, { boxes, nodes: nodes.length, edges: drawn.edges.length, drawn: took });
}

const elementOf = (id) => svg && svg.querySelector(`[id="${id}"]`);

// position of a box; a closed or removed one has that of its outer box
function boxPlace(id) {
  const element = elementOf(id);
  if (!element) return null;
  const { x, y } = element.getBoundingClientRect();
  return { x, y };
}

// tooltips
function nameThings() {
  for (const element of svg.querySelectorAll("title")) element.remove();
  for (const element of svg.querySelectorAll(".node, .edge, .cluster")) {
    const number = Number(element.id.slice(1));
    const text = { n: nodeHint, g: groupHint, e: edgeHint }[element.id[0]](number);
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = text;
    element.prepend(title);
  }
}

function nodeHint(n) {
  const node = nodes[n], when = whenOf(node);
  const runs = when && when[0] !== "always" ? `\nruns ${when[0] === "never" ? "never" : `if ${when[1]}`}` : "";
  return `${node.name}  ${node.op}\n${(node.out || []).join(", ")}${runs}`;
}

const groupHint = (g) => `${KINDS[groups[g].kind]} ${groups[g].label}: ${insides[g].count} nodes`;

function edgeHint(e) {
  const { texts } = drawn.edges[e];
  const more = texts.length > 12 ? `\nand ${texts.length - 12} more` : "";
  return texts.slice(0, 12).join("\n") + more;
}

function move(to) {
  Object.assign(place, to);
  svg.style.transform = `translate(${place.x}px, ${place.y}px) scale(${place.zoom})`;
}

function fit() {
  if (!svg) return;
  const { width, height } = svg.viewBox.baseVal;
  const room = canvas.getBoundingClientRect();
  const zoom = Math.min(1.4, (room.width - 24) / width, (room.height - 24) / height);
  move({ zoom, x: (room.width - width * zoom) / 2, y: (room.height - height * zoom) / 2 });
}

// the part of the picture with what differs, on the page of two graphs
function differingPart() {
  const ids = [...new Set(drawn.shown.filter((id, n) => id && nodes[n].status))];
  const boxes = ids.map((id) => elementOf(id)?.getBBox()).filter(Boolean);
  if (!boxes.length) return null;
  const x = least(boxes.map((box) => box.x)), y = least(boxes.map((box) => box.y));
  const right = greatest(boxes.map((box) => box.x + box.width)), bottom = greatest(boxes.map((box) => box.y + box.height));
  // Graphviz counts from the bottom: its drawing is moved by this much
  const shift = svg.querySelector(".graph").transform.baseVal.consolidate().matrix;
  return { x: x + shift.e, y: y + shift.f, width: right - x, height: bottom - y };
}

function showPart(part) {
  const room = canvas.getBoundingClientRect(), margin = 60;
  const fits = Math.min((room.width - margin) / part.width, (room.height - margin) / part.height);
  const zoom = Math.min(1.2, Math.max(READABLE, fits));
  const start = (size, whole) => Math.max(margin / 2, (size - whole * zoom) / 2);
  move({ zoom, x: start(room.width, part.width) - part.x * zoom, y: start(room.height, part.height) - part.y * zoom });
  fitting = fits;
}

// fit the picture, or its upper part at a readable size
function showStart() {
  const part = model.difference ? differingPart() : null;
  fit();
  if (part) {
    fitting = place.zoom;
    if (fitting < COLUMN) showPart(part);
    return;
  }
  const { width, height } = svg.viewBox.baseVal;
  const room = canvas.getBoundingClientRect();
  const zoom = Math.min(1, (room.width - 24) / width);
  fitting = zoom;
  if (place.zoom < zoom && zoom >= COLUMN) {
    move({ zoom, x: (room.width - width * zoom) / 2, y: 12 });
    return;
  }
  if (place.zoom >= OVERVIEW) return;
  const spare = (size, whole) => Math.max(12, (size - whole * READABLE) / 2);
  move({ zoom: READABLE, x: spare(room.width, width), y: spare(room.height, height) });
}

function zoomBy(factor, x, y) {
  const zoom = Math.min(6, Math.max(0.02, place.zoom * factor));
  const grown = zoom / place.zoom;
  move({ zoom, x: x - (x - place.x) * grown, y: y - (y - place.y) * grown });
}

// center a box at a readable size
function centre(id) {
  const element = elementOf(id);
  if (!element) return;
  if (place.zoom < 0.7) move({ zoom: 0.9 });
  const room = canvas.getBoundingClientRect(), box = element.getBoundingClientRect();
  move({
    x: place.x + room.x + room.width / 2 - box.x - box.width / 2,
    y: place.y + room.y + room.height / 2 - box.y - box.height / 2,
  });
}

function toggle(g) {
  if (isOpen(g)) open.delete(g);
  else open.add(g);
  redraw(`g${g}`);
}

// open boxes, outer ones first, while the picture stays small enough to be laid out
function expandAll() {
  openSome(MOST_BOXES, true);
  redraw();
  const closed = drawn.boxOf.some((box, g) => box === `g${g}`);
  if (closed) document.getElementById("status").textContent += `; some stay closed, as at most ${MOST_BOXES} are drawn`;
}

function toggleOperands() {
  folding.operands = !folding.operands;
  document.getElementById("operands").setAttribute("aria-pressed", String(!folding.operands));
  redraw(picked ?? undefined);
}

// show the box of a node or group, and open its outer boxes
function reveal(id) {
  const outer = around(id[0] === "n" ? nodes[Number(id.slice(1))].group : groups[Number(id.slice(1))].parent);
  const closed = outer.filter((g) => !isOpen(g));
  for (const g of closed) open.add(g);
  const n = id[0] === "n" ? Number(id.slice(1)) : -1;
  const hides = n >= 0 && !exposed.has(n) && (isFolded(n) || isReplaced(n));
  if (hides) expose(n);
  if (closed.length || hides) redraw();
}

// draw a node that is folded, or that a body replaces
function expose(n) {
  exposed.add(n);
  if (nodes[n].argument) exposed.add(nodes[n].argument[0]);
}

// select a node or group, and show its details
function pick(id, { centred = false } = {}) {
  picked = id;
  if (id) reveal(id);
  mark();
  showDetails(id);
  if (id && centred) centre(id);
  remember({ node: id && id[0] === "n" ? nodes[Number(id.slice(1))].name : null });
}

function mark() {
  if (!svg) return;
  for (const element of svg.querySelectorAll(".picked, .on")) element.classList.remove("picked", "on");
  const element = picked && elementOf(picked);
  if (!element) return;
  element.classList.add("picked");
  drawn.edges.forEach((edge, e) => {
    if (edge.from === picked || edge.to === picked) elementOf(`e${e}`)?.classList.add("on");
  });
}

function watchPointer() {
  let from = null, far = false;
  canvas.addEventListener("pointerdown", (event) => {
    from = { x: event.clientX - place.x, y: event.clientY - place.y, startX: event.clientX, startY: event.clientY };
    far = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from || !svg || !event.buttons) return;
    far = far || Math.hypot(event.clientX - from.startX, event.clientY - from.startY) > 4;
    if (!far) return;
    canvas.classList.add("moving");
    canvas.setPointerCapture(event.pointerId);
    move({ x: event.clientX - from.x, y: event.clientY - from.y });
  });
  canvas.addEventListener("pointerup", () => {
    from = null;
    canvas.classList.remove("moving");
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const room = canvas.getBoundingClientRect();
    if (svg) zoomBy(Math.exp(-event.deltaY * 0.0015), event.clientX - room.x, event.clientY - room.y);
  }, { passive: false });
  canvas.addEventListener("click", (event) => {
    if (!far) clicked(event.target);
  });
}

function clicked(target) {
  const element = target.closest(".node, .cluster");
  if (!element) {
    pick(null);
    return;
  }
  const { id } = element;
  const closed = element.classList.contains("closed");
  const title = element.classList.contains("cluster") && target.tagName === "text";
  if (closed || title) toggle(Number(id.slice(1)));
  pick(id);
}
