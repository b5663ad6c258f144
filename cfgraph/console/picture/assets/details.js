// The side panel: one node, one box, or the findings of `check`.

const details = document.getElementById("details");
const MANY = 60;

// create an element; children are elements or texts
function make(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== "") element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function nodeLink(n, text = nodes[n].name) {
  const { name } = nodes[n];
  return make("a", { href: `#node=${encodeURIComponent(name)}`, "data-node": n, title: text.includes(name) ? undefined : name }, ...breakable(text));
}

// a text that breaks after slashes before it breaks inside a word
function breakable(text) {
  return text.split(/(?<=\/)/).flatMap((part, at) => (at ? [make("wbr"), part] : [part]));
}

const dim = (text) => make("span", { class: "dim" }, text);

const findingsOf = (() => {
  const byName = new Map();
  for (const finding of model.findings) {
    for (const name of new Set([finding.where.node, ...finding.related].filter(Boolean))) {
      if (byName.has(name)) byName.get(name).push(finding);
      else byName.set(name, [finding]);
    }
  }
  return (n) => byName.get(nodes[n].name) || [];
})();

// where the selection is: the boxes around it, outermost first
function showCrumbs(id) {
  const crumbs = document.getElementById("crumbs"), number = id ? Number(id.slice(1)) : 0;
  crumbs.hidden = !id;
  if (!id) return;
  const outer = id[0] === "n" ? around(nodes[number].group) : around(groups[number].parent);
  const own = id[0] === "n" ? shortName(nodes[number]) : groupLabel(number);
  const links = outer.map((g) => (g === ROOT ? make("a", { "data-all": "true" }, model.title) : make("a", { "data-group": g, title: groups[g].label }, groupLabel(g))));
  crumbs.replaceChildren(...links.flatMap((link) => [link, dim(" › ")]), make("b", {}, own));
}

function showDetails(id) {
  showCrumbs(id);
  if (!id) details.replaceChildren(...aboutGraph());
  else if (id[0] === "n") details.replaceChildren(...aboutNode(Number(id.slice(1))));
  else details.replaceChildren(...aboutGroup(Number(id.slice(1))));
}

function facts(rows) {
  const filled = rows.filter(([, value]) => value !== undefined && value !== "");
  return make("dl", {}, ...filled.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function list(title, items) {
  if (!items.length) return [];
  const rest = items.length > MANY ? [make("li", {}, dim(`and ${items.length - MANY} more`))] : [];
  return [make("h3", {}, ...breakable(title)), make("ul", {}, ...items.slice(0, MANY).map((item) => make("li", {}, ...item)), ...rest)];
}

// the names below a common scope, after a line with the scope
const below = (scope) => (scope ? [make("p", { class: "dim below" }, ...breakable(`below ${scope}:`))] : []);

function whenText(node) {
  const when = whenOf(node);
  if (!when) return undefined;
  return when[0] === "sometimes" ? `if ${when[1]}` : when[0];
}

// the names that the panel has of a node, without those of long lists
function namesNear(n) {
  const node = nodes[n];
  const sources = [...(node.in || []).map((item) => (Array.isArray(item) ? item[0] : null)), ...(node.after || [])];
  const near = [...sources, ...readers[n].slice(0, MANY).map((use) => use.node)].filter((one) => typeof one === "number");
  return [...near.map((one) => nodes[one].name), ...((whenText(node) || "").match(NAME) || [])];
}

function aboutNode(n) {
  const node = nodes[n], near = commonScope(namesNear(n));
  const sources = (node.in || []).map((item, slot) => {
    if (!Array.isArray(item)) return [`${slot} `, item];
    const [source, port] = item;
    return [dim(`${slot} `), nodeLink(source, near.text(`${nodes[source].name}:${port}`)), dim(` ${nodes[source].out?.[port] ?? ""}`)];
  });
  const linked = (one, sign = "") => nodeLink(one, near.text(`${sign}${nodes[one].name}`));
  const controls = (node.after || []).map((one) => (typeof one === "number" ? [linked(one, "^")] : [one]));
  const link = model.links.filter((ends) => ends.includes(n));
  return [
    make("h2", {}, nodeLink(n, foldedName(node.name))),
    make("p", {}, `${node.op} `, dim(model.ops[node.op].about.replaceAll("`", ""))),
    ...aboutDifference(node),
    make("p", { class: "paths" }, ...aboutPath(n)),
    ...below(near.below),
    facts([
      ["runs", near.text(whenText(node) ?? "")],
      ["frame", cut(node.frame ?? "", LONG_NAME)],
      ["device", node.device],
      ...runFacts(n),
    ]),
    ...list("findings", findingsOf(n).map(findingText)),
    ...list("inputs", sources),
    ...list("after", controls),
    ...list("outputs", (node.out || []).map((type, port) => [dim(`${port} `), type])),
    ...list("read by", readers[n].filter((use) => !use.control).map((use) => [
      linked(use.node), dim(` input ${use.slot}${use.port ? `, from output ${use.port}` : ""}`)])),
    ...list("before", readers[n].filter((use) => use.control).map((use) => [linked(use.node, "^")])),
    ...list("other end", link.map(([send, recv]) => [nodeLink(send === n ? recv : send)])),
    ...aboutValue(node.value),
    ...list("attributes", Object.entries(node.attrs || {}).map(([name, text]) => [dim(`${name} `), text])),
  ];
}

const BAR = { width: 300, height: 90 };

// statistics and histogram of a constant
function aboutValue(value) {
  if (!value) return [];
  const { least: low, greatest: high, counts = [], first, ...rest } = value;
  const number = (one) => (typeof one === "number" ? String(Number(one.toPrecision(5))) : one);
  const most = greatest(counts, 1), wide = BAR.width / Math.max(1, counts.length);
  const bars = counts.map((count, at) => {
    const tall = (count / most) * BAR.height;
    return `<rect x="${at * wide}" y="${BAR.height - tall}" width="${wide - 1}" height="${tall}"><title>${count} elements</title></rect>`;
  });
  const holder = make("div", { class: "bars" });
  holder.innerHTML = `<svg viewBox="0 0 ${BAR.width} ${BAR.height + 16}" width="100%">${bars.join("")}`
    + `<text x="0" y="${BAR.height + 13}">${number(low)}</text><text x="${BAR.width}" y="${BAR.height + 13}" text-anchor="end">${number(high)}</text></svg>`;
  return [
    make("h3", {}, "value"),
    ...(counts.length ? [holder] : []),
    facts([["least", low], ["greatest", high], ...Object.entries(rest)].map(([name, one]) => [name, number(one ?? "")])),
    make("p", { class: "value" }, first),
  ];
}

function aboutDifference({ status, changes = [] }) {
  if (!status) return [];
  const side = (text, sign) => (text === null ? null : make("div", { class: sign === "-" ? "removed" : "added" }, `${sign} ${text}`));
  return [
    make("p", { class: status }, `${status}${status === "changed" ? ":" : ""}`),
    ...changes.map(([part, before, after]) => make("div", { class: "change" }, part, side(before, "-"), side(after, "+"))),
  ];
}

// nodes that differ, on the page of two graphs
function listDifferences() {
  return ["changed", "removed", "added"].flatMap((status) => {
    const which = nodes.flatMap((node, n) => (node.status === status ? [n] : []));
    return nodeList(`${which.length} ${status}`, which, (n) => [dim(` ${nodes[n].op}`)]);
  });
}

// links to nodes, whose common scope is in the title
function nodeList(title, which, more = () => []) {
  const { below: scope, text } = commonScope(which.slice(0, MANY).map((n) => nodes[n].name));
  return list(`${title}${scope && ` below ${scope}`}`, which.map((n) => [nodeLink(n, text(nodes[n].name)), ...more(n)]));
}

function groupLink(g) {
  return make("a", { "data-group": g, title: groups[g].label }, `${KINDS[groups[g].kind]} ${groupLabel(g)}`);
}

function findingText(finding) {
  const where = numbers.get(finding.where.node);
  return [
    make("b", { class: finding.level, title: finding.title }, `${finding.level} ${finding.code}`), " ",
    finding.message,
    where === undefined ? null : make("span", {}, " at ", nodeLink(where)),
    finding.hint ? make("div", { class: "dim" }, `hint: ${finding.hint}`) : null,
  ];
}

function counted(items) {
  const found = new Map();
  for (const item of items) found.set(item, (found.get(item) || 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

function within(g) {
  return [...insides[g].all, ...insides[g].groups.flatMap(within)];
}

function aboutGroup(g) {
  const members = within(g);
  const button = make("button", { "data-toggle": g }, isOpen(g) ? "close" : "open");
  return [
    make("h2", {}, groups[g].label),
    make("p", {}, `${KINDS[groups[g].kind]}, ${members.length} nodes `, button),
    ...list("ops", counted(members.map((n) => nodes[n].op)).map(([op, count]) => [dim(`${count} `), op])),
    ...list("boxes", insides[g].groups.map((one) => [groupLink(one)])),
    ...nodeList("nodes", insides[g].nodes),
  ];
}

function aboutGraph() {
  const kinds = counted(groups.slice(1).map((group) => group.kind)).filter(([kind]) => !["chunk", "unchanged"].includes(kind));
  return [
    make("h2", {}, model.title),
    make("p", {}, `${nodes.length} nodes`, ...kinds.map(([kind, count]) => `, ${count}\u00a0${KINDS[kind]}${count === 1 ? "" : "s"}`)),
    make("p", { class: "dim" }, "Click a box (+) to open it, its title (−) to close it. Drag to move, scroll to zoom."),
    ...model.notes.map((text) => make("p", { class: "warning" }, text)),
    ...(model.difference ? listDifferences() : []),
    ...list("findings", model.findings.map(findingText)),
    ...list("ops", counted(nodes.map((node) => node.op)).map(([op, count]) => [dim(`${count} `), op])),
  ];
}

const KINDS = {
  device: "device", frame: "loop", scope: "scope", function: "function", call: "call", cluster: "cluster", chunk: "chunk", library: "library", rest: "part", unchanged: "part",
};

function watchDetails() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-node], [data-group], [data-toggle], [data-all]");
    if (!link) return;
    event.preventDefault();
    if (link.dataset.all !== undefined) {
      pick(null);
      return;
    }
    const { node, group, toggle: box } = link.dataset;
    if (box !== undefined) {
      reveal(`g${box}`);
      toggle(Number(box));
      showDetails(`g${box}`);
      return;
    }
    showTab("graph");
    pick(node !== undefined ? `n${node}` : `g${group}`, { centred: true });
  });
}
