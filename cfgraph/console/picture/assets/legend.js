// Legend of the lines, shapes, and boxes in the picture.

function line(className) {
  return `<svg viewBox="0 0 44 16" class="sign"><g class="edge ${className}"><path d="M2 8H36"/><polygon points="36,5 42,8 36,11"/></g></svg>`;
}

function shape(points, className = "") {
  return `<svg viewBox="0 0 44 16" class="sign"><g class="node ${className}"><polygon points="${points}"/></g></svg>`;
}

const RECTANGLE = "4,2 40,2 40,14 4,14";
const box = (className) => `<svg viewBox="0 0 44 16" class="sign"><g class="cluster ${className}"><polygon points="${RECTANGLE}"/></g></svg>`;
const HUED = `<svg viewBox="0 0 44 16" class="sign"><g class="node hued" style="--hue:210"><polygon points="${RECTANGLE}"/></g></svg>`;

// what the picture has, and what its colors are of
function legend() {
  const roles = new Set(nodes.map(roleOf)), kinds = new Set(groups.map((group) => group.kind));
  const has = (...names) => names.some((name) => roles.has(name));
  const colour = document.getElementById("colour").value;
  const runs = new Set(colour === "liveness" ? model.whens.map((when) => when[0]) : []);
  const signs = [
    [true, line("data"), "data"],
    [nodes.some((node) => node.after), line("control"), "control edge"],
    [has("next_iteration"), line("back"), "back edge of a loop"],
    [model.links.length, line("message"), "message, Send to Recv"],
    [calls.length, line("calls"), "call of a function"],
    [true, line("data many"), "several edges"],
    [has("switch"), shape("10,2 34,2 40,14 4,14"), "Switch"],
    [has("merge"), shape("4,2 40,2 34,14 10,14", "loop"), "Merge"],
    [has("enter", "exit"), shape("4,2 34,2 40,8 34,14 4,14", "loop"), "Enter, Exit"],
    [has("send", "recv"), shape("4,2 34,2 40,8 34,14 4,14", "send"), "Send, Recv"],
    [kinds.has("device"), box("device"), "device"],
    [kinds.has("frame"), box("frame"), "loop"],
    [kinds.has("scope"), box("scope"), "name scope"],
    [kinds.has("chunk"), box("chunk"), "consecutive nodes"],
    [kinds.has("cluster"), box("launch"), "cluster"],
    [kinds.has("function") || kinds.has("call"), box("function"), "function, its call"],
    [runs.has("sometimes"), HUED, "same color: equal liveness"],
    [colour === "device", HUED, "same color: same device"],
    ...["added", "removed", "changed"].map((status) => [nodes.some((node) => node.status === status), shape(RECTANGLE, status), status]),
    [runs.has("never"), shape(RECTANGLE, "never"), "never runs"],
  ];
  const shown = signs.filter(([wanted]) => wanted);
  document.getElementById("signs").innerHTML = shown.map(([, sign, text]) => `<span>${sign}${text}</span>`).join("");
}

// open until it is closed once, where there is room; a page in a frame may have no storage
function openLegend(element) {
  const KEY = "cfgraph-legend";
  let state = null;
  try { state = localStorage.getItem(KEY); } catch { state = "closed"; }
  element.open = state !== "closed" && innerWidth >= 1000 && innerHeight >= 600;
  element.addEventListener("click", () => {
    try { localStorage.setItem(KEY, element.open ? "closed" : "open"); } catch { /* not remembered */ }
  });
}
