// The page comes alive.

const TABS = run
  ? { graph: "graph", timeline: "timeline", values: "values", times: "times" }
  : { graph: "graph" };

function showTab(name) {
  for (const tab of document.querySelectorAll(".tab")) tab.hidden = tab.id !== name;
  for (const button of document.querySelectorAll("#tabs button")) {
    button.setAttribute("aria-pressed", String(button.dataset.tab === name));
  }
  document.body.dataset.tab = name;
  if (name === "timeline") drawTimeline();
  remember({ tab: name === "graph" ? null : name });
}

function offerTabs() {
  const names = Object.keys(TABS);
  if (names.length < 2) return;
  document.getElementById("tabs").append(...names.map((name) => make("button", { "data-tab": name, onclick: () => showTab(name) }, TABS[name])));
}

// what is looked at stands in the address, so that it can be kept and handed on
function remember(changes) {
  const told = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined) told.delete(name);
    else told.set(name, value);
  }
  history.replaceState(null, "", `#${told}`);
}

function goToAddress() {
  const told = new URLSearchParams(location.hash.slice(1));
  const n = numbers.get(told.get("node") ?? model.start);
  showTab(Object.hasOwn(TABS, told.get("tab")) ? told.get("tab") : "graph");
  if (n === undefined) tell(null);
  else pick(`n${n}`, { centred: true });
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
  legend();
  if (run) {
    showTimeline();
    showValues();
    showTimes();
    if (run.error) problem(`the run failed: ${run.error}`);
  }
  watchPointer();
  watchSearch();
  watchDetails();
  document.getElementById("fit").addEventListener("click", fit);
  document.getElementById("less").addEventListener("click", () => {
    openSome();
    redraw();
  });
  document.getElementById("colour").value = "when it runs";
  openSome();
  tell(null);
  try {
    await loadViz();
    redraw();
  } catch (error) {
    document.getElementById("wait").hidden = true;
    problem(`the graph cannot be drawn: ${error}`);
  }
  goToAddress();
  window.addEventListener("hashchange", goToAddress);
  document.body.dataset.ready = Math.round(performance.now());
}

begin();
