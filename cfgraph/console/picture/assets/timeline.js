// Timeline of a run: one lane per device, iterations by color, messages as lines between lanes.

const LEFT = 120, TOP = 26, GAP = 22, ROWS = 8;
const LEAST_ROW = 20;
let ROW = LEAST_ROW;
const MOST_MESSAGES = 1500;

// the end of the drawing, which shows only the beginning of a long run
function drawnEnd() {
  const { start, took } = run.slices;
  if (start.length === run.events) return Math.max(1, run.end);
  return start.reduce((end, at, s) => Math.max(end, at + took[s]), 1);
}

// a run is prepared before its first token
const drawnStart = () => Math.max(0, least([drawnEnd(), ...run.slices.start]) - drawnEnd() * 0.002);

const timeline = run && {
  element: document.getElementById("timeline"),
  from: drawnStart(),
  to: drawnEnd(),
  focus: null,
  rows: [], // of each row its device and its slices, by start
  places: [], // of each slice its row
};

function layOut() {
  const { device, start, took } = run.slices;
  const lanes = run.devices.map(() => []);
  const order = start.map((_, s) => s).sort((a, b) => start[a] - start[b] || a - b);
  for (const s of order) {
    const lane = lanes[device[s]];
    let row = lane.findIndex((one) => one.end <= start[s]);
    if (row < 0 && lane.length < ROWS) row = lane.push({ device: device[s], slices: [], end: 0 }) - 1;
    if (row < 0) row = ROWS - 1;
    lane[row].slices.push(s);
    lane[row].end = Math.max(lane[row].end, start[s] + took[s]);
    timeline.places[s] = lane[row];
  }
  const byName = (a, b) => run.devices[a].localeCompare(run.devices[b], "en", { numeric: true });
  for (const lane of lanes.map((_, device) => device).sort(byName).map((device) => lanes[device])) {
    timeline.rows.push(...lane);
  }
  placeRows();
}

// rows fill the page
function placeRows() {
  const { element, canvas, rows } = timeline, lanes = new Set(rows.map((row) => row.device)).size;
  const free = canvas ? element.clientHeight - canvas.offsetTop - TOP - (lanes + 1) * GAP : 0;
  ROW = Math.max(LEAST_ROW, Math.floor(free / Math.max(1, rows.length)));
  let y = TOP;
  rows.forEach((row, at) => {
    if (at && rows[at - 1].device !== row.device) y += GAP;
    row.y = y;
    y += ROW;
  });
  timeline.height = y + GAP;
}

const iterationOf = run ? run.frames.map((path) => {
  const found = /\[(\d+)\]$/.exec(path);
  return found ? Number(found[1]) : null;
}) : [];

function sliceColour(s, style) {
  const { frame, dead } = run.slices;
  if (dead[s]) return style.never;
  const iteration = iterationOf[frame[s]];
  if (iteration === null) return style.outside;
  return `hsl(${(iteration * 137.5 + 20) % 360} ${style.mark})`;
}

function showTimeline() {
  const { element } = timeline;
  layOut();
  timeline.canvas = make("canvas", { id: "lanes" });
  timeline.hint = make("div", { id: "hint", hidden: "hidden" });
  const drawn = run.slices.start.length;
  const part = drawn < run.events ? ` The first ${drawn} of ${run.events} tokens are drawn.` : "";
  const caption = make("p", { class: "dim" }, "Colors are iterations, gray is outside of loops, pale is dead; lines are messages."
    + " Scroll to zoom, drag to move, double-click to show everything. Drag with Shift to add up a range;"
    + ` a search adds up what it finds, and Enter moves to the next.${part} Times are from the ${run.clock} clock.`);
  element.append(caption, timeline.canvas, timeline.hint);
  new ResizeObserver(drawTimeline).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTimeline);
  watchTimeline();
}

const room = () => Math.max(50, timeline.canvas.clientWidth - LEFT - 10);
const xOf = (ns) => LEFT + ((ns - timeline.from) / (timeline.to - timeline.from)) * room();
const nsOf = (x) => timeline.from + ((x - LEFT) / room()) * (timeline.to - timeline.from);

function drawTimeline() {
  const { canvas, rows, focus } = timeline;
  if (timeline.element.hidden) return;
  placeRows();
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.width = width * ratio;
  canvas.height = timeline.height * ratio;
  canvas.style.height = `${timeline.height}px`;
  const pen = canvas.getContext("2d"), css = getComputedStyle(document.documentElement);
  const get = (name) => css.getPropertyValue(`--${name}`).trim();
  const style = { never: get("never"), outside: get("edge"), mark: get("mark"), ink: get("ink"), dim: get("dim"), rule: get("rule"), message: get("message") };
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  drawAxis(pen, style, width);
  drawLabels(pen, style);
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, room(), timeline.height);
  pen.clip();
  const { start, took, frame } = run.slices;
  for (const row of rows) {
    for (const s of row.slices) {
      if (start[s] + took[s] < timeline.from || start[s] > timeline.to) continue;
      const x = xOf(start[s]), wide = Math.max(1, xOf(start[s] + took[s]) - x);
      pen.globalAlpha = shareOf(s) === null ? 0.12 : focus === null || focus === frame[s] ? 1 : 0.25;
      pen.fillStyle = sliceColour(s, style);
      pen.fillRect(x, row.y + 1, wide > 3 ? wide - 0.5 : wide, ROW - 3);
      if (wide > 12) label(pen, style, run.names[run.slices.node[s]], x, row.y, wide);
    }
  }
  pen.globalAlpha = 1;
  if (chosenRange.from !== null) {
    pen.strokeStyle = style.ink;
    pen.strokeRect(xOf(chosenRange.from), TOP - 4, xOf(chosenRange.to) - xOf(chosenRange.from), timeline.height - TOP - GAP + 8);
  }
  drawMessages(pen, style);
  pen.restore();
}

// the longest end of a name, from a slash on, that fits whole: along the row, or upright
function label(pen, style, name, x, y, wide) {
  pen.fillStyle = style.ink;
  const parts = name.split("/");
  for (let from = 0; from < parts.length; from++) {
    const text = parts.slice(from).join("/"), long = pen.measureText(text).width;
    if (long <= wide - 6) {
      pen.fillText(text, x + 3, y + Math.min(ROW - 7, ROW / 2 + 4));
      return;
    }
    if (long > ROW - 12) continue;
    pen.save();
    pen.translate(x + wide / 2 + 4, y + ROW - 8);
    pen.rotate(-Math.PI / 2);
    pen.fillText(text, 0, 0);
    pen.restore();
    return;
  }
}

function drawLabels(pen, style) {
  pen.fillStyle = style.ink;
  const seen = new Set();
  for (const row of timeline.rows) {
    if (seen.has(row.device)) continue;
    seen.add(row.device);
    pen.fillText(run.devices[row.device], 8, row.y + Math.min(ROW - 7, ROW / 2 + 4), LEFT - 14);
  }
}

function drawAxis(pen, style, width) {
  const span = timeline.to - timeline.from;
  const rough = span / Math.max(2, room() / 110), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  for (let ns = Math.ceil(timeline.from / step) * step; ns <= timeline.to; ns += step) {
    const x = xOf(ns);
    pen.fillStyle = style.rule;
    pen.fillRect(x, 18, 1, timeline.height - 18);
    pen.fillStyle = style.dim;
    pen.fillText(timeText(ns), Math.min(x + 3, width - 60), 13);
  }
}

function drawMessages(pen, style) {
  const { start, took } = run.slices;
  const ends = run.messages
    .map(([send, recv]) => ({ send, recv, from: start[send] + took[send], to: start[recv] + took[recv] }))
    .filter(({ from, to }) => to >= timeline.from && from <= timeline.to);
  if (ends.length > MOST_MESSAGES) return;
  pen.strokeStyle = style.message;
  pen.fillStyle = style.message;
  pen.lineWidth = 1.2;
  pen.globalAlpha = ends.length > 100 ? 0.55 : 1;
  for (const { send, recv, from, to } of ends) {
    const above = timeline.places[send].y < timeline.places[recv].y;
    const y1 = timeline.places[send].y + (above ? ROW - 2 : 1), y2 = timeline.places[recv].y + (above ? 1 : ROW - 2);
    pen.beginPath();
    pen.moveTo(xOf(from), y1);
    pen.lineTo(xOf(to), y2);
    pen.stroke();
    pen.beginPath();
    pen.arc(xOf(to), y2, 2.2, 0, 7);
    pen.fill();
  }
}

// the slice under the pointer, or null
function sliceAt(event) {
  const box = timeline.canvas.getBoundingClientRect();
  const x = event.clientX - box.x, y = event.clientY - box.y, ns = nsOf(x);
  const row = timeline.rows.find((one) => y >= one.y && y < one.y + ROW);
  if (!row || x < LEFT) return null;
  const { start, took } = run.slices;
  const near = nsOf(x + 2) - ns;
  let low = 0, high = row.slices.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[row.slices[middle]] <= ns + near) low = middle + 1;
    else high = middle;
  }
  const s = row.slices[low - 1];
  return s !== undefined && start[s] + took[s] >= ns - near ? s : null;
}

function hintOf(s) {
  const { node, start, took, frame, dead, device } = run.slices;
  const path = run.frames[frame[s]];
  const message = run.messages.find(([send, recv]) => send === s || recv === s);
  return [
    make("b", {}, run.names[node[s]]), make("br"),
    `${path === "/" ? "outside loops" : path}${dead[s] ? ", dead" : ""}`, make("br"),
    `${run.devices[device[s]]}, at ${timeText(start[s])}, took ${timeText(took[s])}`,
    ...(message ? [make("br"), `${message[0] === s ? "to" : "from"} ${run.devices[device[message[message[0] === s ? 1 : 0]]]}, ${message[2]} B`] : []),
  ];
}

function watchTimeline() {
  const { canvas, hint, element } = timeline;
  let held = null;
  canvas.addEventListener("pointermove", (event) => {
    if (held?.selects && event.buttons) {
      const ends = [held.x, event.clientX].map((x) => nsOf(x - canvas.getBoundingClientRect().x));
      selectRange(Math.max(0, least(ends)), Math.min(drawnEnd(), greatest(ends)));
      return;
    }
    if (held && event.buttons) {
      const shift = ((held.x - event.clientX) / room()) * (held.to - held.from);
      setSpan(held.from + shift, held.to + shift);
      return;
    }
    const s = sliceAt(event);
    const focus = s === null || run.frames[run.slices.frame[s]] === "/" ? null : run.slices.frame[s];
    hint.hidden = s === null;
    if (s !== null) {
      hint.replaceChildren(...hintOf(s));
      const box = element.getBoundingClientRect();
      hint.style.left = `${Math.min(event.clientX - box.x + 12, box.width - 300)}px`;
      hint.style.top = `${event.clientY - box.y + element.scrollTop + 14}px`;
    }
    if (focus !== timeline.focus) {
      timeline.focus = focus;
      drawTimeline();
    }
  });
  canvas.addEventListener("pointerleave", () => {
    hint.hidden = true;
    timeline.focus = null;
    drawTimeline();
  });
  canvas.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX, from: timeline.from, to: timeline.to, selects: event.shiftKey };
  });
  canvas.addEventListener("pointerup", (event) => {
    const still = held && Math.abs(held.x - event.clientX) < 4;
    held = null;
    const s = still ? sliceAt(event) : null;
    const n = s === null ? undefined : numbers.get(run.names[run.slices.node[s]]);
    if (n !== undefined) {
      picked = `n${n}`;
      showDetails(picked);
    }
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const ns = nsOf(event.clientX - canvas.getBoundingClientRect().x), factor = Math.exp(event.deltaY * 0.0015);
    setSpan(ns - (ns - timeline.from) * factor, ns + (timeline.to - ns) * factor);
  }, { passive: false });
  canvas.addEventListener("dblclick", () => setSpan(drawnStart(), drawnEnd()));
}

function setSpan(from, to) {
  const span = Math.min(Math.max(to - from, 50), run.end * 1.02 || 1);
  timeline.from = Math.max(-0.01 * run.end, Math.min(from, run.end * 1.01 - span));
  timeline.to = timeline.from + span;
  drawTimeline();
}
