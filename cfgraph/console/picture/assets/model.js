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
const insides = groups.map(() => ({ groups: [], nodes: [], count: 0 }));
const readers = nodes.map(() => []);
const open = new Set();

for (let g = groups.length - 1; g > ROOT; g--) insides[groups[g].parent].groups.unshift(g);
nodes.forEach((node, n) => {
  insides[node.group].nodes.push(n);
  for (let g = node.group; g !== undefined; g = groups[g].parent) insides[g].count++;
  (node.in || []).forEach((item, slot) => {
    if (Array.isArray(item)) readers[item[0]].push({ node: n, slot, port: item[1] });
  });
  for (const source of node.after || []) {
    if (typeof source === "number") readers[source].push({ node: n, control: true });
  }
});

const holdsLoop = groups.map((group) => group.kind === "frame");
for (let g = groups.length - 1; g > ROOT; g--) holdsLoop[groups[g].parent] ||= holdsLoop[g];

const roleOf = (node) => model.ops[node.op].role;
const whenOf = (node) => (node.when === undefined ? undefined : model.whens[node.when]);
const isOpen = (g) => open.has(g);
const size = (g) => insides[g].groups.length + insides[g].nodes.length;

// the groups that contain a node or group, outermost first
function around(group) {
  const found = [];
  for (let g = group; g !== undefined; g = groups[g].parent) found.unshift(g);
  return found;
}

// a name without the prefix of its box
function shortName(node) {
  const prefix = groups[node.group].prefix || "";
  return node.name.startsWith(prefix) ? node.name.slice(prefix.length) : node.name;
}

// open devices, then boxes that contain loops, then the rest, smaller first, while the picture stays small
function openSome(limit = BUDGET) {
  open.clear();
  open.add(ROOT);
  let count = size(ROOT);
  let waiting = together(ROOT);
  while (waiting.length) {
    const [set, ...rest] = waiting.sort((a, b) => a.rank - b.rank || a.more - b.more);
    waiting = rest;
    if (count + set.more > limit) continue;
    count += set.more;
    for (const g of set.groups) {
      open.add(g);
      waiting = waiting.concat(together(g));
    }
  }
}

// inner boxes that open together: sibling scopes all or none, those with loops separately
function together(outer) {
  const sets = new Map();
  for (const g of insides[outer].groups) {
    const { kind } = groups[g];
    const key = ["scope", "chunk"].includes(kind) ? `${kind} ${holdsLoop[g]}` : g;
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
  if (groups[g].kind === "device") return 0;
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

// the drawing: per node the box that shows it, and the edges between boxes
function scene() {
  const boxOf = [];
  groups.forEach((group, g) => {
    const outer = g === ROOT ? null : boxOf[group.parent];
    boxOf.push(outer ?? (isOpen(g) ? null : `g${g}`));
  });
  const shown = nodes.map((node, n) => boxOf[node.group] ?? `n${n}`);
  return { boxOf, shown, edges: edgesBetween(shown) };
}

function edgesBetween(shown) {
  const found = new Map();
  const add = (source, target, kind, text, port) => {
    const from = shown[source], to = shown[target];
    if (from === to) {
      if (from[0] === "g" || kind !== "data" || source !== target) return;
    }
    const key = `${from}>${to}>${kind}`;
    const known = found.get(key);
    if (known === undefined) found.set(key, { from, to, kind, count: 1, texts: [text], port });
    else if (known.texts.push(text)) known.count++;
  };
  nodes.forEach((node, n) => {
    const merges = roleOf(node) === "merge";
    (node.in || []).forEach((item) => {
      if (!Array.isArray(item)) return;
      const source = nodes[item[0]];
      const back = merges && roleOf(source) === "next_iteration";
      const type = (source.out || [])[item[1]] || "";
      add(item[0], n, back ? "back" : "data", `${source.name}:${item[1]} → ${node.name}  ${type}`, item[1]);
    });
    for (const source of node.after || []) {
      if (typeof source === "number") add(source, n, "control", `^${nodes[source].name} → ${node.name}`);
    }
  });
  for (const [send, recv] of model.links) {
    add(send, recv, "message", `${nodes[send].name} ⇢ ${nodes[recv].name}`);
  }
  for (const [caller, argument] of calls) add(caller, argument, "calls", `calls ${nodes[argument].name}`);
  return [...found.values()];
}
