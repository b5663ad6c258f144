// Start-up of the page: controls, address, and tabs.

const TABS = run
  ? { graph: "graph", timeline: "timeline", values: "values", times: "times" }
  : { graph: "graph" };

function showTab(name) {
  for (const tab of document.querySelectorAll(".tab")) tab.hidden = tab.id !== name;
  for (const button of document.querySelectorAll("#tabs button")) {
    button.setAttribute("aria-pressed", String(button.dataset.tab === name));
  }
  document.body.dataset.tab = name;
  if (run) findOnTimeline(name === "timeline" ? search.value : "");
  remember({ tab: name === "graph" ? null : name });
}

function offerTabs() {
  const names = Object.keys(TABS);
  if (names.length < 2) return;
  document.getElementById("tabs").append(...names.map((name) => make("button", { "data-tab": name, onclick: () => showTab(name) }, TABS[name])));
}

// the address contains the selection, so that it can be bookmarked and shared
function remember(changes) {
  const address = new URLSearchParams(pageAddress());
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined) address.delete(name);
    else address.set(name, value);
  }
  if (location.protocol === "about:") addressInFrame = String(address);
  else history.replaceState(null, "", `#${address}`);
}

// a page in a frame of a notebook has no address of its own
let addressInFrame = "";

function pageAddress() {
  return location.protocol === "about:" ? addressInFrame : location.hash.slice(1);
}

function goToAddress() {
  const address = new URLSearchParams(pageAddress());
  const n = numbers.get(address.get("node") ?? model.start);
  showTab(Object.hasOwn(TABS, address.get("tab")) ? address.get("tab") : model.tab ?? "graph");
  if (n === undefined) showDetails(null);
  else pick(`n${n}`, { centred: true });
  goToPath(address);
}

function offerFindings() {
  if (!model.findings.length) return;
  const button = document.getElementById("found"), count = model.findings.length;
  button.hidden = false;
  button.className = model.findings[0].level;
  button.textContent = `${count} finding${count === 1 ? "" : "s"}`;
  button.addEventListener("click", () => pick(null));
}

async function begin() {
  document.getElementById("title").append(model.title, make("small", {}, `${nodes.length} nodes`));
  offerTabs();
  offerColours();
  offerFindings();
  openLegend(document.getElementById("legend"));
  if (run) {
    showTimeline();
    showValues();
    showTimes();
    if (run.error) problem(`the run failed: ${run.error}`);
  }
  watchPointer();
  watchSearch();
  watchDetails();
  offerSaving();
  document.getElementById("fit").addEventListener("click", fit);
  document.getElementById("more").addEventListener("click", expandAll);
  document.getElementById("operands").hidden = !nodes.some((node) => node.folded);
  document.getElementById("operands").addEventListener("click", toggleOperands);
  document.getElementById("less").addEventListener("click", drawStart);
  document.getElementById("colour").value = model.difference ? "nothing" : "liveness";
  legend();
  openSome();
  showDetails(null);
  try {
    await loadViz();
    drawStart();
  } catch (error) {
    document.getElementById("wait").hidden = true;
    problem(`the graph cannot be drawn: ${error}`);
  }
  goToAddress();
  window.addEventListener("hashchange", goToAddress);
  document.body.dataset.ready = Math.round(performance.now());
}

begin();
