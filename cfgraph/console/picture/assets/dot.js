// The picture in the DOT language; colors come from the style sheet, which has light and dark ones.

const SHAPES = {
  switch: "trapezium", merge: "invtrapezium", enter: "cds", exit: "cds", loop_cond: "hexagon",
  send: "cds", recv: "cds", call: "component", cluster: "component",
};
const MARGINS = { cds: "0.2,0.12", trapezium: "0,0", invtrapezium: "0,0", hexagon: "0,0.02" };
const LONGEST = 36;
const MOST_OPERANDS = 3;
const MOST_LABELS = 300;
// beyond this many edges, Graphviz must not optimize their routes
const MANY_EDGES = 400;

// control characters are not drawn, and a NUL would end the string
const escaped = (text) => text.replace(/[\x00-\x1f\x7f]/g, "\ufffd").replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/&/g, "&amp;");

function dotText({ boxOf, edges, shown }) {
  const lines = [
    "digraph {",
    '  graph [fontname="Helvetica", fontsize=11, bgcolor=transparent, labeljust=l, nodesep=0.18, ranksep=0.32];',
    '  node [shape=box, style=rounded, fontname="Helvetica", fontsize=10, height=0.3, width=0.4, margin="0.12,0.06"];',
    '  edge [arrowsize=0.6, fontname="Helvetica", fontsize=10, labelfontsize=8, labeldistance=1.6];',
  ];
  if (edges.length > MANY_EDGES) lines.push("  graph [splines=polyline, nslimit=1, nslimit1=1, mclimit=0.3];");
  inside(ROOT, { boxOf, shown }, lines, "  ");
  const labels = edges.length <= MOST_LABELS;
  edges.forEach((edge, number) => lines.push(`  ${edgeText(edge, number, labels)}`));
  lines.push("}");
  return lines.join("\n");
}

function inside(group, { boxOf, shown }, lines, indent) {
  for (const g of insides[group].groups) {
    if (boxOf[g] !== null) {
      lines.push(`${indent}g${g} [id=g${g}, class="closed ${kindClass(g)}", style=filled, label="${closedLabel(g)}"];`);
      continue;
    }
    const style = groups[g].kind === "device" ? "" : " style=rounded;";
    lines.push(`${indent}subgraph cluster_g${g} { id=g${g}; class="${kindClass(g)}";${style} label="− ${escaped(cut(groupLabel(g), LONGEST))}";`);
    inside(g, { boxOf, shown }, lines, `${indent}  `);
    lines.push(`${indent}}`);
  }
  for (const n of insides[group].all) if (isItself(shown, n)) lines.push(`${indent}${nodeText(n)}`);
}

const kindClass = (g) => (groups[g].kind === "cluster" ? "launch" : groups[g].kind);

function closedLabel(g) {
  const { count } = insides[g], main = ["rest", "unchanged"].includes(groups[g].kind) ? "" : mainOp(g);
  return `+ ${escaped(cut(groupLabel(g), LONGEST))}\\n${main ? `${escaped(main)} · ` : ""}${count} node${count === 1 ? "" : "s"}${differenceText(g)}`;
}

// the op of a box with the largest matrix of weights, which names a layer best
const mainOp = remembered((g) => {
  let main = "", most = 0;
  for (const n of within(g)) {
    for (const { type } of operandsOf(n)) {
      if (elementsOf(type) > most && sizesOf(type).includes("×")) [main, most] = [nodes[n].op, elementsOf(type)];
    }
  }
  return main;
});

function remembered(find) {
  const known = new Map();
  return (key) => {
    if (!known.has(key)) known.set(key, find(key));
    return known.get(key);
  };
}

function nodeText(n) {
  const node = nodes[n];
  const name = cut(shortName(node), LONGEST);
  const value = (node.attrs || {}).value;
  const constant = value && !node.in && value.length <= 24 ? value.replace(/^\S+/, "") : "";
  const op = node.op + constant;
  const last = name.slice(name.lastIndexOf("/") + 1).replace(/_\d+$/, "");
  const label = [...(last === op ? [name] : [name, op]), ...operandLines(n)].map(escaped).join("\\n");
  const role = roleOf(node);
  const shape = SHAPES[role] ? `, shape=${SHAPES[role]}, style=solid, margin="${MARGINS[SHAPES[role]] || "0.1,0.05"}"` : "";
  return `n${n} [id=n${n}, class="${nodeClass(n)}", label="${label}"${shape}];`;
}

// constants and weights: a scalar by its value, others by their sizes
function operandLines(n) {
  const names = model.ops[nodes[n].op].inputs || [], all = operandsOf(n);
  const operands = all.filter(({ type }) => !(type || "").startsWith("resource"));
  const variables = all.length - operands.length;
  const lines = variables ? [`${variables} variable${variables === 1 ? "" : "s"}`] : [];
  if (operands.length > MOST_OPERANDS) return [...lines, `${operands.length} constants`];
  return lines.concat(operands.map(({ slot, source, type }) => {
    const value = (nodes[source].attrs || {}).value;
    const name = names.length > slot && names[slot].length > 1 ? `${names[slot]} ` : "";
    return name + (value && value.length <= 24 ? value.replace(/^\S+ ?/, "") : sizesOf(type) || (type || "").replace("[]", ""));
  }));
}

function nodeClass(n) {
  const role = roleOf(nodes[n]);
  const levels = findingsOf(n).map((finding) => finding.level);
  const worst = ["error", "warning"].find((level) => levels.includes(level)) || "";
  const loop = ["enter", "exit", "next_iteration", "merge", "loop_cond"].includes(role) ? "loop" : "";
  return [role, loop, worst, nodes[n].status].filter(Boolean).join(" ");
}

// a closed box says how many nodes in it differ
function differenceText(g) {
  const count = model.difference ? within(g).filter((n) => nodes[n].status).length : 0;
  return count ? `, ${count} differ` : "";
}

function edgeText({ from, to, kind, count, port, type }, number, labels) {
  const attributes = [`id=e${number}`, `class="${kind}${count > 1 ? " many" : ""}"`];
  if (kind === "back") attributes.push("constraint=false");
  if (count === 1 && port && from[0] === "n") attributes.push(`taillabel="${port}"`);
  if (labels && kind === "data" && sizesOf(type)) attributes.push(`label="${escaped(`\u00a0\u00a0${sizesOf(type)}`)}"`);
  return `${from} -> ${to} [${attributes.join(", ")}];`;
}
