// Sums over a part of the timeline: a range of time, or the slices that a search finds.

const MOST_SUMS = 25;
const chosenRange = { from: null, to: null };
let wantedNodes = null; // per name of a slice, whether the search finds it

// overlap of a slice with the selected range, in nanoseconds; null outside
function shareOf(s) {
  const { start, took, node } = run.slices;
  if (wantedNodes && !wantedNodes[node[s]]) return null;
  if (chosenRange.from === null) return took[s];
  const from = Math.max(start[s], chosenRange.from), to = Math.min(start[s] + took[s], chosenRange.to);
  return to < from ? null : to - from;
}

function sumBy(keyOf) {
  const sums = new Map();
  run.slices.start.forEach((_, s) => {
    const share = shareOf(s);
    if (share === null) return;
    const key = keyOf(s), known = sums.get(key) || [0, 0];
    sums.set(key, [known[0] + 1, known[1] + share]);
  });
  return [...sums].sort((a, b) => b[1][1] - a[1][1]);
}

function sumTable(title, rows, cell = (key) => key) {
  const body = rows.slice(0, MOST_SUMS).map(([key, [count, total]]) => make("tr", {},
    make("td", {}, cell(key)), make("td", { class: "right" }, String(count)), make("td", { class: "right" }, timeText(total))));
  const more = rows.length > MOST_SUMS ? [dim(`and ${rows.length - MOST_SUMS} more`)] : [];
  return [make("h3", {}, title), make("table", { class: "sums" }, make("tbody", {}, ...body)), ...more];
}

function showSums() {
  if (chosenRange.from === null && !wantedNodes) {
    showDetails(picked);
    return;
  }
  const { node, device } = run.slices, names = run.names;
  const opOf = (s) => nodes[numbers.get(names[node[s]])]?.op ?? "unknown";
  const ops = sumBy(opOf);
  const [count, total] = ops.reduce((sum, [, [n, ns]]) => [sum[0] + n, sum[1] + ns], [0, 0]);
  const span = chosenRange.from === null ? [] : [make("p", { id: "span" }, `${timeText(chosenRange.from)} to ${timeText(chosenRange.to)}, `
    + `${timeText(chosenRange.to - chosenRange.from)} `, make("button", { id: "unselect", onclick: () => selectRange(null, null) }, "clear"))];
  details.replaceChildren(
    make("h2", {}, wantedNodes ? `search: ${search.value.trim()}` : "selection"), ...span,
    make("p", { id: "sum" }, `${count} token${count === 1 ? "" : "s"}, ${timeText(total)} in total`),
    ...sumTable("by device", sumBy((s) => run.devices[device[s]])),
    ...sumTable("by op", ops),
    ...sumTable("by node", sumBy((s) => names[node[s]]), (name) => (numbers.has(name) ? nodeLink(numbers.get(name), foldedName(name)) : name)),
  );
}

function selectRange(from, to) {
  Object.assign(chosenRange, { from, to });
  drawTimeline();
  showSums();
}

// highlight the slices of the nodes whose name or op contains a text
function findOnTimeline(text) {
  const wanted = text.trim().toLowerCase();
  wantedNodes = wanted ? run.names.map((name) => {
    const op = nodes[numbers.get(name)]?.op ?? "";
    return name.toLowerCase().includes(wanted) || op.toLowerCase().includes(wanted);
  }) : null;
  drawTimeline();
  showSums();
}

// move the timeline to the next slice that the search finds, or back to the first
function nextOnTimeline() {
  if (!wantedNodes) return;
  const { start, took, node } = run.slices, middle = (timeline.from + timeline.to) / 2;
  const centreOf = (s) => start[s] + took[s] / 2, near = (timeline.to - timeline.from) * 1e-6;
  const hitsInOrder = start.map((_, s) => s).filter((s) => wantedNodes[node[s]]).sort((a, b) => centreOf(a) - centreOf(b));
  const next = hitsInOrder.find((s) => centreOf(s) > middle + near) ?? hitsInOrder[0];
  if (next === undefined) return;
  const span = Math.min((timeline.to - timeline.from), Math.max(took[next] * 20, run.end / 50, 50));
  setSpan(centreOf(next) - span / 2, centreOf(next) + span / 2);
}
