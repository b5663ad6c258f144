// Model of the graph, and the set of open boxes.

// first, because an error before this handler exists leaves a blank page
window.addEventListener("error", (event) => problem(event.message));
window.addEventListener("unhandledrejection", (event) => problem(String(event.reason)));

function problem(text) {
  const place = document.getElementById("problems");
  place.hidden = false;
  place.textContent += `${text}\n`;
}

// for lists of any length: a call accepts at most about 100,000 arguments
const greatest = (items, atLeast = -Infinity) => items.reduce((most, item) => Math.max(most, item), atLeast);
const least = (items) => items.reduce((most, item) => Math.min(most, item), Infinity);

const model = JSON.parse(document.getElementById("model").textContent);
const { nodes, groups } = model;
const ROOT = 0;
// boxes that are open initially
const BUDGET = 70;

const numbers = new Map(nodes.map((node, number) => [node.name, number]));
const insides = groups.map(() => ({ groups: [], nodes: [], all: [], count: 0 }));
const readers = nodes.map(() => []);
const open = new Set();
// folded nodes, and calls and arguments in place of which a body is drawn, that are drawn all the same
const exposed = new Set();
const folding = { operands: true };

for (let g = groups.length - 1; g > ROOT; g--) insides[groups[g].parent].groups.unshift(g);
nodes.forEach((node, n) => {
  insides[node.group].all.push(n);
  if (!node.folded) {
    insides[node.group].nodes.push(n);
    for (let g = node.group; g !== undefined; g = groups[g].parent) insides[g].count++;
  }
  (node.in || []).forEach((item, slot) => {
    if (Array.isArray(item)) readers[item[0]].push({ node: n, slot, port: item[1] });
  });
  for (const source of node.after || []) {
    if (typeof source === "number") readers[source].push({ node: n, control: true });
  }
});

const holdsLoop = groups.map((group) => group.kind === "frame");
for (let g = groups.length - 1; g > ROOT; g--) holdsLoop[groups[g].parent] ||= holdsLoop[g];

// boxes of nodes that differ, on the page of two graphs
const differs = groups.map(() => false);
nodes.forEach((node) => { differs[node.group] ||= Boolean(node.status); });
for (let g = groups.length - 1; g > ROOT; g--) differs[groups[g].parent] ||= differs[g];

const isFoldedDifference = groups.some((group) => group.kind === "unchanged");

const roleOf = (node) => model.ops[node.op].role;
const whenOf = (node) => (node.when === undefined ? undefined : model.whens[node.when]);
const isOpen = (g) => open.has(g);
const isFolded = (n) => Boolean(nodes[n].folded) && folding.operands && !exposed.has(n);
const isReplaced = (n) => Boolean(nodes[n].body || nodes[n].argument);
const size = (g) => insides[g].groups.length + insides[g].nodes.filter((n) => !isReplaced(n)).length;

// the groups that contain a node or group, outermost first
function around(group) {
  const found = [];
  for (let g = group; g !== undefined; g = groups[g].parent) found.unshift(g);
  return found;
}

// the label of a box without scopes that outer boxes have
function groupLabel(g) {
  const { label, parent } = groups[g], outer = around(parent).map((one) => groups[one].label).join("/");
  const parts = label.split("/");
  const from = parts.findIndex((_, at) => at < parts.length - 1 && `/${outer}/`.includes(`/${parts.slice(at).join("/")}/`));
  return from < 0 ? label : [...parts.slice(0, from), "…", parts.at(-1)].join("/");
}

// a name without the prefix of its box
function shortName(node) {
  const prefix = groups[node.group].prefix || "";
  return node.name.startsWith(prefix) ? node.name.slice(prefix.length) : node.name;
}

// open devices, then boxes that contain loops, then the rest, smaller first, while the picture stays small
function openSome(limit = BUDGET, parts = false) {
  open.clear();
  open.add(ROOT);
  let count = size(ROOT);
  let waiting = together(ROOT, parts);
  while (waiting.length) {
    const [set, ...rest] = waiting.sort((a, b) => a.rank - b.rank || a.more - b.more);
    waiting = rest;
    if (count + set.more > limit) continue;
    count += set.more;
    for (const g of set.groups) {
      open.add(g);
      waiting = waiting.concat(together(g, parts));
    }
  }
}

// inner boxes that open together: sibling scopes all or none, those with loops separately; parts that
// a reader does not look for only if all boxes are to open
function together(outer, parts) {
  const sets = new Map();
  for (const g of insides[outer].groups) {
    const { kind } = groups[g];
    if (!parts && (["rest", "unchanged"].includes(kind) || (isFoldedDifference && !differs[g]))) continue;
    const key = ["scope", "chunk"].includes(kind) ? `${kind} ${holdsLoop[g]} ${differs[g]}` : g;
    if (sets.has(key)) sets.get(key).push(g);
    else sets.set(key, [g]);
  }
  return [...sets.values()].map((set) => ({
    groups: set,
    more: set.reduce((sum, g) => sum + size(g) - 1, 0),
    rank: least(set.map(rankOf)),
  }));
}

function rankOf(g) {
  if (groups[g].kind === "device" || differs[g]) return 0;
  if (groups[g].kind === "rest" || groups[groups[g].parent].kind === "rest") return 3;
  return holdsLoop[g] || around(g).some((one) => groups[one].kind === "frame") ? 1 : 2;
}

// the nodes that call a function, with the arguments of the drawn body
const calls = nodes.flatMap((node, n) => {
  if (node.op !== "_Arg") return [];
  const body = around(node.group).reverse().find((g) => ["function", "cluster"].includes(groups[g].kind));
  if (body === undefined) return [];
  const outer = groups[body].kind === "cluster" ? body : groups[body].parent ?? ROOT;
  const caller = insides[outer].nodes.find((one) => ["call", "cluster"].includes(roleOf(nodes[one])));
  return caller === undefined || outer === ROOT ? [] : [[caller, n]];
});

// the drawing: per node the box that shows it, empty for a hidden one, and the edges between boxes
function scene() {
  const boxOf = [];
  groups.forEach((group, g) => {
    const outer = g === ROOT ? null : boxOf[group.parent];
    boxOf.push(outer ?? (isOpen(g) ? null : `g${g}`));
  });
  const shown = nodes.map((node, n) => boxOf[node.group] ?? `n${n}`);
  const hidden = nodes.map((node, n) => isFolded(n) || (Boolean(node.body) && isItself(shown, n) && !exposed.has(n)));
  nodes.forEach(({ argument }, n) => {
    if (argument && hidden[argument[0]] && isItself(shown, n) && !exposed.has(n)) hidden[n] = true;
  });
  const edges = edgesBetween(shown, hidden);
  hidden.forEach((is, n) => { if (is) shown[n] = ""; });
  return { boxOf, shown, edges };
}

const isItself = (shown, n) => shown[n] === `n${n}`;

// the tensor behind calls and arguments that are replaced by bodies, or null if it is not drawn
function drawnSource(item, hidden) {
  let current = item;
  for (let steps = 0; steps < groups.length * 2; steps++) {
    if (!Array.isArray(current)) return null;
    const [n, port] = current, { body, argument } = nodes[n];
    if (!hidden[n]) return current;
    if (body) current = body.results[port];
    else if (argument) current = (nodes[argument[0]].in || [])[argument[1]];
    else return null;
  }
  return null;
}

// a closed box with what the picture is not about has no edges
const isAside = (id) => id[0] === "g" && groups[Number(id.slice(1))].kind === "rest";

function edgesBetween(shown, hidden) {
  const found = new Map();
  const add = (source, target, kind, text, port, type = "") => {
    const from = shown[source], to = shown[target];
    if (isAside(from) || isAside(to)) return;
    if (from === to) {
      if (from[0] === "g" || kind !== "data" || source !== target) return;
    }
    const key = `${from}>${to}>${kind}`;
    const known = found.get(key);
    if (known === undefined) found.set(key, { from, to, kind, count: 1, texts: [text], port, type, ends: [[source, target]] });
    else if (known.texts.push(text)) {
      known.count++;
      known.ends.push([source, target]);
      if (known.type !== type) known.type = "";
    }
  };
  nodes.forEach((node, n) => {
    if (hidden[n]) return;
    const merges = roleOf(node) === "merge";
    (node.in || []).forEach((item) => {
      const tensor = drawnSource(item, hidden);
      if (tensor === null) return;
      const [s, port] = tensor, source = nodes[s];
      const back = merges && roleOf(source) === "next_iteration";
      const type = (source.out || [])[port] || "";
      add(s, n, back ? "back" : "data", `${source.name}:${port} → ${node.name}  ${type}`, port, type);
    });
    for (const source of node.after || []) {
      if (typeof source !== "number") continue;
      for (const s of controlSources(source, hidden)) add(s, n, "control", `^${nodes[source].name} → ${node.name}`);
    }
  });
  for (const [send, recv] of model.links) {
    add(send, recv, "message", `${nodes[send].name} ⇢ ${nodes[recv].name}`);
  }
  for (const [source, target] of model.gone || []) {
    if (!hidden[source] && !hidden[target]) add(source, target, "gone", `only in the first graph: ${nodes[source].name} → ${nodes[target].name}`);
  }
  for (const [caller, argument] of calls) {
    if (!hidden[caller] && !hidden[argument]) add(caller, argument, "calls", `calls ${nodes[argument].name}`);
  }
  return [...found.values()];
}

// a call has run when its results are there
function controlSources(n, hidden) {
  if (!hidden[n]) return [n];
  const results = (nodes[n].body?.results || []).map((item) => drawnSource(item, hidden));
  return [...new Set(results.filter((item) => item !== null).map(([s]) => s))];
}

// sizes as in 1×224×224×3; empty for scalars and unknown shapes
function sizesOf(type) {
  const found = /\[(.+)\]$/.exec(type || "");
  return found ? found[1].replaceAll(",", "×") : "";
}

// number of elements, 0 if it is unknown
function elementsOf(type) {
  const sizes = sizesOf(type).split("×").map(Number);
  return sizes.every(Number.isFinite) ? sizes.reduce((product, one) => product * one, 1) : 0;
}

// the folded inputs of a node: slot, node, and type
function operandsOf(n) {
  return (nodes[n].in || []).flatMap((item, slot) => (
    Array.isArray(item) && isFolded(item[0]) ? [{ slot, source: item[0], type: (nodes[item[0]].out || [])[item[1]] }] : []));
}
