// The search box: nodes by name or op.

const search = document.getElementById("search");
const hits = document.getElementById("hits");
const MOST_HITS = 14;
let chosen = 0;

// equal names, names with this end, names that contain it; then ops that contain it
function matches(text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const ranked = [[], [], [], []];
  nodes.forEach((node, n) => {
    const name = node.name.toLowerCase();
    const rank = name === wanted ? 0 : name.endsWith(`/${wanted}`) ? 1 : name.includes(wanted) ? 2
      : node.op.toLowerCase().includes(wanted) ? 3 : -1;
    if (rank >= 0) ranked[rank].push(n);
  });
  return ranked.flat();
}

function showHits() {
  const found = matches(search.value);
  chosen = Math.min(chosen, Math.max(0, Math.min(found.length, MOST_HITS) - 1));
  hits.replaceChildren(
    ...found.slice(0, MOST_HITS).map((n, at) => make("li", { "data-node": n, class: at === chosen ? "at" : "" },
      foldedName(nodes[n].name), " ", make("small", {}, nodes[n].op))),
    ...(found.length > MOST_HITS ? [make("small", {}, `and ${found.length - MOST_HITS} more`)] : []),
    ...(found.length || !search.value.trim() ? [] : [make("small", {}, "no node with this name or op")]),
  );
  hits.hidden = !search.value.trim();
  return found;
}

function jump() {
  const found = showHits();
  if (!found.length) return;
  hits.hidden = true;
  showTab("graph");
  pick(`n${found[chosen]}`, { centred: true });
}

const searchesTimeline = () => document.body.dataset.tab === "timeline";

function watchSearch() {
  search.addEventListener("input", () => {
    chosen = 0;
    if (searchesTimeline()) findOnTimeline(search.value);
    else showHits();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") (searchesTimeline() ? nextOnTimeline : jump)();
    else if (event.key === "Escape") hits.hidden = true;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      chosen = Math.max(0, chosen + (event.key === "ArrowDown" ? 1 : -1));
      showHits();
      event.preventDefault();
    }
  });
  search.addEventListener("blur", () => setTimeout(() => { hits.hidden = true; }, 200));
  document.addEventListener("keydown", (event) => {
    if (["INPUT", "SELECT"].includes(document.activeElement.tagName) || event.ctrlKey || event.metaKey) return;
    if (event.key === "/") {
      search.focus();
      event.preventDefault();
    } else if (event.key === "f") fit();
    else if (event.key === "Escape") pick(null);
  });
}
