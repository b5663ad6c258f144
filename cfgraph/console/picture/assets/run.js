// Data of a run per node, and its tabs: values, and times by op, node, and loop.

const run = model.run;
const totals = new Map((run ? run.totals.node : []).map((row) => [row[0], row]));
const busiestTotal = run ? greatest(run.totals.node.map((row) => row[3]), 1) : 1;
const SHOWN_ROWS = 500;
const LONG_FRAME = 24;

const timeOf = (n) => totals.get(nodes[n].name)?.[3] ?? 0;
const busiest = () => busiestTotal;

function timeText(ns) {
  if (!ns) return "0";
  const [unit, scale] = ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ns >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  return `${Number((ns / scale).toPrecision(4))} ${unit}`;
}

function runFacts(n) {
  if (!run) return [];
  const row = totals.get(nodes[n].name);
  if (!row) return [["ran", "not at all"]];
  const [, count, dead, total] = row;
  return [["ran", `${count} time${count === 1 ? "" : "s"}${dead ? `, ${dead} dead` : ""}, ${timeText(total)}`]];
}

// -- times ------------------------------------------------------------------------------------

const KEYS = { op: "by op", node: "by node", frame: "by loop" };
const sorting = { key: "op", column: 3, down: true };

function showTimes() {
  const rows = run.totals[sorting.key];
  const whole = rows.reduce((sum, row) => sum + row[3], 0) || 1;
  const table = rows.map(([name, count, dead, total, max]) => [name, count, dead, total, total / whole, total / count, max]);
  const { column, down } = sorting;
  const order = (a, b) => (a[column] < b[column] ? -1 : a[column] > b[column] ? 1 : 0) * (down ? -1 : 1);
  table.sort(order);
  const heads = [sorting.key === "frame" ? "loop" : sorting.key, "count", "dead", "total", "share", "mean", "longest"];
  const head = make("tr", {}, ...heads.map((text, at) => make("th", {
    class: at ? "right" : "", "aria-sort": at === column ? (down ? "descending" : "ascending") : undefined,
    onclick: () => sortBy(at),
  }, text + (at === column ? (down ? " ↓" : " ↑") : ""))));
  const { below: scope, text } = commonScope(table.slice(0, SHOWN_ROWS).map(([name]) => name));
  const body = table.slice(0, SHOWN_ROWS).map(([name, count, dead, total, share, mean, max]) => make("tr", {},
    make("td", {}, nameCell(name, text)),
    ...[count, dead || "", timeText(total)].map((text) => make("td", { class: "right" }, String(text))),
    make("td", { class: "right share", style: `--part:${(share * 100).toFixed(2)}%` }, `${(share * 100).toFixed(1)} %`),
    ...[mean, max].map((ns) => make("td", { class: "right" }, timeText(ns)))));
  const choice = Object.entries(KEYS).map(([key, text]) => make("button", {
    "aria-pressed": String(key === sorting.key), onclick: () => { sorting.key = key; showTimes(); } }, text));
  const rest = table.length > SHOWN_ROWS ? [make("p", { class: "dim" }, `and ${table.length - SHOWN_ROWS} more`)] : [];
  document.getElementById("times").replaceChildren(
    make("p", { class: "buttons" }, ...choice, dim(`${run.events} tokens in ${timeText(run.end)}, ${run.clock} clock`)),
    ...below(scope), make("table", { id: "totals" }, make("thead", {}, head), make("tbody", {}, ...body)), ...rest);
}

function nameCell(name, text) {
  const n = sorting.key === "node" ? numbers.get(name) : undefined;
  return n === undefined ? text(name) : nodeLink(n, text(name));
}

function sortBy(column) {
  sorting.down = sorting.column === column ? !sorting.down : column > 0;
  sorting.column = column;
  showTimes();
}

// -- values -----------------------------------------------------------------------------------

function showValues() {
  const results = run.results.map(({ tensor, type, text, dead }) => make("tr", {},
    make("td", {}, tensorLink(tensor)), make("td", { class: "dim" }, type ?? ""), make("td", { class: "value" }, dead ? "dead" : text)));
  const fetched = results.length ? [make("h2", {}, "fetched"), make("table", {}, make("tbody", {}, ...results))] : [];
  const hint = run.taps.length ? [] : [make("p", { class: "dim" }, "--tap NODE keeps the values of a node, iteration by iteration")];
  document.getElementById("values").replaceChildren(...fetched, ...hint, ...run.taps.flatMap(tapped));
}

function tensorLink(tensor) {
  const n = numbers.get(tensor.slice(0, tensor.lastIndexOf(":")));
  return n === undefined ? tensor : nodeLink(n, tensor.replace(nodes[n].name, foldedName(nodes[n].name)));
}

function tapped({ tensor, rows, seen }) {
  const head = make("tr", {}, ...["frame", "iteration", "type", "value"].map((text) => make("th", {}, text)));
  const body = rows.slice(0, SHOWN_ROWS).map(({ frame, iteration, type, text, dead }) => make("tr", {},
    make("td", { title: frame }, cut(frame, LONG_FRAME)), make("td", { class: "right" }, String(iteration)),
    make("td", { class: "dim" }, type ?? ""), make("td", { class: "value" }, dead ? dim("dead") : text)));
  const label = seen > rows.length ? `the first ${rows.length} of ${seen} values` : `${seen} value${seen === 1 ? "" : "s"}`;
  const more = seen > body.length ? [make("p", { class: "dim" }, `the first ${body.length} of ${seen} values`)] : [];
  return [
    make("h2", {}, tensorLink(tensor)), ...plot(rows),
    make("details", { open: rows.length <= 40 ? "open" : undefined }, make("summary", {}, label),
      make("table", { class: "taps" }, make("thead", {}, head), make("tbody", {}, ...body)), ...more),
  ];
}

const WIDTH = 720, HEIGHT = 220, EDGE = 66;
const STATISTICS = ["smallest", "mean", "largest"];

// plot of a tensor's values in order, one line per element or statistic
function plot(rows) {
  const plotted = rows.map((row, at) => ({ ...row, at })).filter((row) => row.numbers?.length);
  const finite = plotted.flatMap((row) => row.numbers).map(Number).filter(Number.isFinite);
  if (plotted.length < 2 || !finite.length) return [];
  const lines = greatest(plotted.map((row) => row.numbers.length));
  let low = least(finite), high = greatest(finite);
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const last = Math.max(1, rows.length - 1);
  const x = (at) => EDGE + (at / last) * (WIDTH - EDGE - 12);
  const y = (value) => HEIGHT - 24 - ((value - low) / (high - low)) * (HEIGHT - 36);
  const isStatistic = plotted.some((row) => row.numbers.length === 3 && !/\[3\]|\[1,3\]|\[3,1\]/.test(row.type));
  const parts = [axes(low, high, y, last)];
  for (let line = 0; line < lines; line++) {
    const points = plotted.filter((row) => Number.isFinite(Number(row.numbers[line] ?? NaN)));
    const path = points.map((row) => `${x(row.at).toFixed(1)},${y(Number(row.numbers[line])).toFixed(1)}`).join(" ");
    const hue = (line * 137.5 + 210) % 360;
    const name = isStatistic ? STATISTICS[line] : lines > 1 ? `element ${line}` : "value";
    parts.push(`<polyline points="${path}" style="--hue:${hue}"/>`);
    if (points.length > 400) continue;
    for (const row of points) {
      parts.push(`<circle cx="${x(row.at).toFixed(1)}" cy="${y(Number(row.numbers[line])).toFixed(1)}" r="2.6" style="--hue:${hue}">`
        + `<title>${name} ${row.numbers[line]}, iteration ${row.iteration}</title></circle>`);
    }
  }
  const holder = make("div", { class: "plot" });
  holder.innerHTML = `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}">${parts.join("")}</svg>`;
  const legend = isStatistic ? [make("p", { class: "dim" }, "minimum, mean, and maximum")] : [];
  return [holder, ...legend];
}

function axes(low, high, y, last) {
  const marks = [low, (low + high) / 2, high].map((value) =>
    `<line x1="${EDGE}" x2="${WIDTH - 12}" y1="${y(value)}" y2="${y(value)}"/>`
    + `<text x="${EDGE - 6}" y="${y(value) + 4}" text-anchor="end">${Number(value.toPrecision(3))}</text>`);
  return `${marks.join("")}<text x="${EDGE}" y="${HEIGHT - 6}">value 0</text>`
    + `<text x="${WIDTH - 12}" y="${HEIGHT - 6}" text-anchor="end">${last}</text>`;
}
