// Paths between two nodes: every node and edge that lies on a directed path.

const path = { from: null, to: null, nodes: null };

// the nodes that a node leads to: readers, the argument of a called body, and the other end of a message
const successors = (() => {
  const target = ({ node, slot, control }) => (control ? node : nodes[node].body?.arguments[slot] ?? node);
  const next = nodes.map((_, n) => (nodes[n].body ? [] : readers[n].map(target)));
  nodes.forEach(({ body }, n) => {
    if (!body) return;
    next[n].push(...body.arguments, ...readers[n].filter((use) => use.control).map(target));
    body.results.forEach((item, port) => {
      if (!Array.isArray(item)) return;
      for (const use of readers[n]) if (use.port === port) next[item[0]].push(target(use));
    });
  });
  for (const [send, recv] of model.links) next[send].push(recv);
  for (const [caller, argument] of calls) if (!nodes[caller].body) next[caller].push(argument);
  return next;
})();

const predecessors = (() => {
  const before = nodes.map(() => []);
  successors.forEach((targets, n) => { for (const target of targets) before[target].push(n); });
  return before;
})();

function reached(start, next) {
  const seen = new Set([start]);
  for (const n of seen) for (const target of next[n]) seen.add(target);
  return seen;
}

function nodesBetween(from, to) {
  const after = reached(from, successors);
  if (!after.has(to)) return new Set();
  const before = reached(to, predecessors);
  return new Set([...after].filter((n) => before.has(n)));
}

function startPath(n) {
  Object.assign(path, { from: n, to: null, nodes: null });
  remember({ from: nodes[n].name, to: null });
  markPath();
  showDetails(`n${n}`);
}

function endPath(n) {
  Object.assign(path, { to: n, nodes: nodesBetween(path.from, n) });
  remember({ to: nodes[n].name });
  reveal(`n${path.from}`);
  reveal(`n${n}`);
  markPath();
  showDetails(picked ?? `n${n}`);
  centre(picked ?? `n${n}`);
}

function clearPath() {
  Object.assign(path, { from: null, to: null, nodes: null });
  remember({ from: null, to: null });
  markPath();
  showDetails(picked);
}

function markPath() {
  if (!svg) return;
  const on = path.nodes && path.nodes.size ? path.nodes : null;
  svg.classList.toggle("pathed", on !== null);
  for (const element of svg.querySelectorAll(".path")) element.classList.remove("path");
  if (!on) return;
  for (const n of on) elementOf(drawn.shown[n])?.classList.add("path");
  drawn.edges.forEach((edge, e) => {
    if (edge.ends.some(([source, target]) => on.has(source) && on.has(target))) elementOf(`e${e}`)?.classList.add("path");
  });
}

// buttons of the panel, and the result
function aboutPath(n) {
  if (path.from === null) return [make("button", { id: "path-from", onclick: () => startPath(n) }, "paths from here")];
  const clear = make("button", { id: "path-clear", onclick: clearPath }, "clear");
  if (path.to === null) {
    const end = path.from === n ? dim(" select the other end") : make("button", { id: "path-to", onclick: () => endPath(n) }, "paths to here");
    return [dim("from "), nodeLink(path.from), " ", end, " ", clear];
  }
  const count = path.nodes.size;
  const back = count === 0 && nodesBetween(path.to, path.from).size > 0;
  const text = count ? `${count} nodes on paths from ` : `${back ? "only a path in the other direction" : "no path"}: `;
  return [dim(text), nodeLink(path.from), dim(" to "), nodeLink(path.to), " ", clear];
}

function goToPath(address) {
  const from = numbers.get(address.get("from")), to = numbers.get(address.get("to"));
  if (from === undefined) return;
  path.from = from;
  if (to !== undefined) endPath(to);
}
