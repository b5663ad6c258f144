// The picture in the DOT language; colors come from the style sheet, which has light and dark ones.

const SHAPES = {
  switch: "trapezium", merge: "invtrapezium", enter: "cds", exit: "cds", loop_cond: "hexagon",
  send: "cds", recv: "cds", call: "component", cluster: "component",
};
const MARGINS = { cds: "0.2,0.12", trapezium: "0,0", invtrapezium: "0,0", hexagon: "0,0.02" };
const LONGEST = 36;
// beyond this many edges, Graphviz must not optimize their routes
const MANY_EDGES = 400;

// control characters are not drawn, and a NUL would end the string
const escaped = (text) => text.replace(/[\x00-\x1f\x7f]/g, "\ufffd").replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/&/g, "&amp;");

function cut(text) {
  if (text.length <= LONGEST) return text;
  return `${text.slice(0, LONGEST / 2 - 1)}…${text.slice(-LONGEST / 2)}`;
}

function dotText({ boxOf, edges }) {
  const lines = [
    "digraph {",
    '  graph [fontname="Helvetica", fontsize=11, bgcolor=transparent, nodesep=0.18, ranksep=0.32];',
    '  node [shape=box, style=rounded, fontname="Helvetica", fontsize=10, height=0.3, width=0.4, margin="0.1,0.05"];',
    '  edge [arrowsize=0.6, fontname="Helvetica", fontsize=8];',
  ];
  if (edges.length > MANY_EDGES) lines.push("  graph [splines=polyline, nslimit=1, nslimit1=1, mclimit=0.3];");
  inside(ROOT, boxOf, lines, "  ");
  edges.forEach((edge, number) => lines.push(`  ${edgeText(edge, number)}`));
  lines.push("}");
  return lines.join("\n");
}

function inside(group, boxOf, lines, indent) {
  for (const g of insides[group].groups) {
    if (boxOf[g] !== null) {
      lines.push(`${indent}g${g} [id=g${g}, class="closed ${kindClass(g)}", style=filled, label="${closedLabel(g)}"];`);
      continue;
    }
    const style = groups[g].kind === "device" ? "" : " style=rounded;";
    lines.push(`${indent}subgraph cluster_g${g} { id=g${g}; class="${kindClass(g)}";${style} label="− ${escaped(cut(groups[g].label))}";`);
    inside(g, boxOf, lines, `${indent}  `);
    lines.push(`${indent}}`);
  }
  for (const n of insides[group].nodes) lines.push(`${indent}${nodeText(n)}`);
}

const kindClass = (g) => (groups[g].kind === "cluster" ? "launch" : groups[g].kind);

function closedLabel(g) {
  const { count } = insides[g];
  return `+ ${escaped(cut(groups[g].label))}\\n${count} node${count === 1 ? "" : "s"}`;
}

function nodeText(n) {
  const node = nodes[n];
  const name = cut(shortName(node));
  const value = (node.attrs || {}).value;
  const constant = value && !node.in && value.length <= 24 ? value.replace(/^\S+/, "") : "";
  const op = node.op + constant;
  const last = name.slice(name.lastIndexOf("/") + 1).replace(/_\d+$/, "");
  const label = last === op ? escaped(name) : `${escaped(name)}\\n${escaped(op)}`;
  const role = roleOf(node);
  const shape = SHAPES[role] ? `, shape=${SHAPES[role]}, style=solid, margin="${MARGINS[SHAPES[role]] || "0.1,0.05"}"` : "";
  return `n${n} [id=n${n}, class="${nodeClass(n)}", label="${label}"${shape}];`;
}

function nodeClass(n) {
  const role = roleOf(nodes[n]);
  const levels = findingsOf(n).map((finding) => finding.level);
  const worst = ["error", "warning"].find((level) => levels.includes(level)) || "";
  const loop = ["enter", "exit", "next_iteration", "merge", "loop_cond"].includes(role) ? "loop" : "";
  return [role, loop, worst].filter(Boolean).join(" ");
}

function edgeText({ from, to, kind, count, port }, number) {
  const attributes = [`id=e${number}`, `class="${kind}${count > 1 ? " many" : ""}"`];
  if (kind === "back") attributes.push("constraint=false");
  if (count === 1 && port && from[0] === "n") attributes.push(`taillabel="${port}"`);
  return `${from} -> ${to} [${attributes.join(", ")}];`;
}
