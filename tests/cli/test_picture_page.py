"""Pages in Chromium: they draw, react, send no requests, and report no errors."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.console.picture.model import page_bytes, picture_model
from cfgraph.console.views.selection import GraphView, NodeSelection
from cfgraph.ir import dtypes
from cfgraph.ir.graph import Graph
from tests.cli.chromium import Chromium, program

pytestmark = pytest.mark.skipif(program() is None, reason="no Chromium is installed")

GRAPHS = Path(__file__).parents[2] / "fixtures/graphs"
NAMES = sorted(file.stem for file in GRAPHS.glob("*.pb"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    running = Chromium(tmp_path_factory.mktemp("browser"))
    yield running
    running.close()


@pytest.fixture
def page(command: Any, browser: Chromium, tmp_path: Path) -> Any:
    """Write a page by a command, and open it."""

    def shown(*options: str | Path, address: str = "", dark: bool = False) -> Chromium:
        file = tmp_path / "page.html"
        done = command(*options, "--html", file)
        assert done.code in (0, 5), done.err
        browser.open(file, address, dark)
        assert browser.requests == [file.as_uri()]
        assert browser.complaints == []
        return browser

    return shown


def count(browser: Chromium, selector: str) -> int:
    found: int = browser.value(f"document.querySelectorAll({selector!r}).length")
    return found


def text(browser: Chromium, selector: str) -> str:
    found: str = browser.value(f"document.querySelector({selector!r}).textContent")
    return found


def drawn(browser: Chromium, name: str) -> bool:
    """True if the picture has a box for the node of a name."""
    return bool(browser.value(f"elementOf('n' + numbers.get({name!r})) !== null"))


def flat(size: int) -> Graph:
    graph = Graph()
    last = graph.add("Placeholder", name="n0", dtype=dtypes.float32)
    for place in range(1, size):
        last = graph.add("Neg", last, name=f"n{place}")
    return graph


@pytest.mark.parametrize("name", NAMES)
def test_a_page_draws_the_graph(name: str, page: Any) -> None:
    browser = page("show", GRAPHS / f"{name}.pb")
    nodes, boxes = (
        int(browser.value(f"document.body.dataset.{one}")) for one in ("nodes", "boxes")
    )
    assert count(browser, "#canvas .node") == boxes
    assert boxes <= min(nodes, 70)
    assert browser.value("document.getElementById('problems').hidden")


@pytest.mark.slow
def test_ten_thousand_nodes_are_a_few_boxes(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "flat.pb"
    cfgraph.save(flat(10_000), file)
    browser = page("show", file)
    assert browser.value("document.body.dataset.nodes") == "10000"
    assert 1 < count(browser, "#canvas .node") <= 70
    browser.open(tmp_path / "page.html", "#node=n5000")
    assert browser.complaints == []
    assert drawn(browser, "n5000")
    assert count(browser, "#canvas .node") < 200


def test_a_click_opens_a_box_and_one_on_its_title_closes_it(page: Any) -> None:
    browser = page("show", GRAPHS / "lstm_grad.pb")
    closed = browser.value("document.querySelector('.node.closed').id")
    before = count(browser, "#canvas .node")
    browser.value(f"centre('{closed}')")
    browser.click(f"#{closed} text")
    assert count(browser, "#canvas .node") > before
    assert count(browser, f".cluster#{closed}") == 1
    assert text(browser, "#details h2") == browser.value(f"groups[{closed[1:]}].label")
    browser.value(f"clicked(document.querySelector('#{closed} text'))")
    assert count(browser, "#canvas .node") == before


def test_the_search_goes_to_a_node_in_closed_boxes(page: Any) -> None:
    browser = page("show", GRAPHS / "lstm_grad.pb")
    name = browser.value("nodes[drawn.shown.findIndex((box) => box[0] === 'g')].name")
    assert not drawn(browser, name)
    browser.click("#search")
    browser.type(name)
    assert drawn(browser, name)
    assert count(browser, ".node.picked") == 1
    assert text(browser, "#details h2") == name
    assert browser.value("new URLSearchParams(location.hash.slice(1)).get('node')") == name


def test_the_panel_reports_all_about_a_node(page: Any) -> None:
    browser = page("show", GRAPHS / "counter.pb", address="#node=while%2Fadd")
    reported = text(browser, "#details")
    for part in ("AddV2", "/while/while_context", "live:while/Merge & while/Less", "int32[]",
                 "while/Identity:0", "while/NextIteration"):  # fmt: skip
        assert part in reported
    browser.click("#details a[data-node]:not(h2 a)")
    assert text(browser, "#details h2") == "while/Identity"


def test_back_edges_control_edges_messages_and_calls_differ(
    page: Any, command: Any, tmp_path: Path
) -> None:
    browser = page("show", GRAPHS / "counter.pb")
    assert count(browser, "#canvas .edge.back") == 1
    assert count(browser, "#canvas .edge.control") == 0
    browser.click("#operands")
    assert count(browser, "#canvas .edge.control") == 1
    two = tmp_path / "two.pb"
    command("partition", GRAPHS / "counter.pb", "--devices", "cpu:0,gpu:0",
            "--place", "while/add=gpu:0", "-o", two)  # fmt: skip
    browser = page("show", two)
    assert count(browser, "#canvas .edge.message") >= 1
    assert count(browser, "#canvas .cluster.device") == 2
    browser = page("show", GRAPHS / "while_functional.pb")
    assert count(browser, "#canvas .edge.calls") >= 2
    signs = browser.value("document.getElementById('signs').textContent")
    assert "call of a function" in signs


def test_what_never_runs_and_what_runs_together_is_filled(page: Any) -> None:
    browser = page("show", GRAPHS / "counter.pb")
    assert count(browser, "#canvas .node.hued") >= 8
    browser.value("document.getElementById('colour').value = 'nothing', paint()")
    assert count(browser, "#canvas .node.hued") == 0


def test_findings_are_listed_and_marked(page: Any, fixtures: Path) -> None:
    browser = page("show", fixtures / "errors" / "CFG109_cycle.graph")
    assert "CFG109" in text(browser, "#details")
    assert count(browser, "#canvas .node.error") >= 1


def test_the_page_is_dark_where_the_system_is(page: Any) -> None:
    colours = {
        page("show", GRAPHS / "counter.pb", dark=dark).value(
            "getComputedStyle(document.body).backgroundColor"
        )
        for dark in (False, True)
    }
    assert len(colours) == 2


def test_texts_are_never_markup(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "odd.graph"
    file.write_text(
        'a = Const() {dtype=string, value=string[]:"<b id=oops>\\\\\\"&lt;"}\n'
        "b = Identity(a) {T=string}\n"
    )
    browser = page("show", file, address="#node=a")
    assert count(browser, "#oops") == 0
    assert "<b id=oops>" in text(browser, "#details")
    assert drawn(browser, "b")


def test_control_characters_are_drawn_as_what_is_no_text(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "odd.graph"
    file.write_text("a = Const() {dtype=int32, value=int32[]:1}\nb = Identity(a) {T=int32}\n")
    browser = page("show", file)
    odd = "O\\0d\\x1bd\\x7f"
    browser.value(f"model.ops['{odd}'] = model.ops.Identity")
    browser.value(f"nodes[1].op = '{odd}'")
    browser.value("redraw()")
    assert "O\ufffdd\ufffdd\ufffd" in text(browser, "#canvas")
    assert drawn(browser, "b")


def test_an_address_with_no_tab_of_the_page_shows_the_graph(page: Any) -> None:
    browser = page("show", GRAPHS / "counter.pb", address="#tab=constructor")
    assert browser.value("document.body.dataset.tab") == "graph"


def test_lists_as_long_as_a_graph_have_a_least_and_a_greatest(page: Any) -> None:
    browser = page("run", GRAPHS / "counter.pb", "--feed", "n=1", "--fetch", "count")
    assert browser.value("greatest(new Array(300000).fill(2), 1)") == 2
    many = "Array.from({ length: 200000 }, (_, at) => ({ numbers: [at], iteration: at, type: '' }))"
    assert browser.value(f"plot({many}).length") == 1


def test_what_fails_before_the_page_is_there_is_reported_on_it(
    browser: Chromium, tmp_path: Path
) -> None:
    model = picture_model("odd", NodeSelection(GraphView(flat(3)), []), [])
    file = tmp_path / "page.html"
    file.write_bytes(page_bytes({**model, "run": {}}))
    browser.open(file, drawn="document.readyState === 'complete'")
    assert "TypeError" in text(browser, "#problems")


def test_a_run_has_a_timeline_values_and_times(page: Any) -> None:
    browser = page(
        "run", GRAPHS / "counter.pb", "--feed", "n=5", "--fetch", "count", "--tap", "while/add",
        "--clock", "virtual", address="#tab=timeline",
    )  # fmt: skip
    painted = (
        "(() => { const { width, height } = timeline.canvas; const colours = new Set();"
        " const { data } = timeline.canvas.getContext('2d').getImageData(0, 0, width, height);"
        " for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255)"
        " colours.add(data.slice(i, i + 3).join()); return colours.size; })()"
    )
    assert browser.value(painted) > 6
    browser.value("showTab('values')")
    assert count(browser, "#values .taps tbody tr") == 6
    assert count(browser, "#values .plot circle") == 5
    assert "count:0" in text(browser, "#values")
    browser.value("showTab('times')")
    cells = "document.querySelectorAll('#totals tbody td:nth-child(2)')"
    totals = f"[...{cells}].map((one) => +one.textContent)"
    browser.click("#totals th:nth-child(2)")
    falling = browser.value(totals)
    browser.click("#totals th:nth-child(2)")
    assert falling == sorted(falling, reverse=True)
    assert browser.value(totals) == sorted(falling)
    assert browser.complaints == []


def test_a_pointer_on_the_timeline_is_reported_the_iteration(page: Any) -> None:
    browser = page("run", GRAPHS / "counter.pb", "--feed", "n=5", "--fetch", "count",
                   "--clock", "virtual", address="#tab=timeline")  # fmt: skip
    browser.value(
        "(() => { const s = run.slices.frame.findIndex((one) => run.frames[one].endsWith('[2]'));"
        " const box = timeline.canvas.getBoundingClientRect();"
        " const at = { clientX: box.x + xOf(run.slices.start[s] + run.slices.took[s] / 2),"
        " clientY: box.y + timeline.places[s].y + 5 };"
        " timeline.canvas.dispatchEvent(new PointerEvent('pointermove', at)); })()"
    )
    assert "/while/while_context[2]" in text(browser, "#hint")


def test_a_failed_run_says_so(page: Any) -> None:
    browser = page("run", GRAPHS / "counter.pb", "--feed", "n=99", "--fetch", "count",
                   "--max-iterations", "5")  # fmt: skip
    assert "the run failed" in text(browser, "#problems")
    assert count(browser, "#canvas .node") > 3


def test_constants_are_lines_of_their_readers_until_they_are_wanted(page: Any) -> None:
    browser = page("show", GRAPHS / "counter.pb")
    assert not drawn(browser, "while/add/y")
    add = browser.value("elementOf('n' + numbers.get('while/add')).textContent")
    assert "1" in add.split("AddV2")[-1]
    browser.click("#operands")
    assert drawn(browser, "while/add/y")
    browser.click("#operands")
    browser.click("#search")
    browser.type("while/add/y")
    assert drawn(browser, "while/add/y")


def test_a_model_is_drawn_through_its_calls_with_shapes(page: Any, fixtures: Path) -> None:
    browser = page("show", fixtures / "saved_model")
    assert not drawn(browser, "StatefulPartitionedCall")
    assert "?\u00d72" in text(browser, "#canvas")
    assert count(browser, "#canvas .node.closed.rest") == 1


def test_expand_all_opens_every_box_and_reset_closes_them(page: Any) -> None:
    browser = page("show", GRAPHS / "lstm_grad.pb")
    before = count(browser, "#canvas .node")
    browser.click("#more")
    assert count(browser, "#canvas .node.closed") == 0
    assert count(browser, "#canvas .node") > before
    browser.click("#less")
    assert count(browser, "#canvas .node") == before


def test_expanding_many_nodes_is_bounded(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "flat.pb"
    cfgraph.save(flat(2_000), file)
    browser = page("show", file)
    browser.click("#more")
    assert count(browser, "#canvas .node") <= 800
    assert "stay closed" in text(browser, "#status")


def test_paths_between_two_nodes_are_highlighted(page: Any) -> None:
    browser = page("show", GRAPHS / "counter.pb", address="#node=while%2FSwitch")
    browser.click("#path-from")
    browser.value("pick('n' + numbers.get('while/add'), { centred: true })")
    browser.click("#path-to")
    on = browser.value("[...path.nodes].map((n) => nodes[n].name)")
    assert {"while/Switch", "while/Identity", "while/add"} <= set(on)
    assert "while/Exit" not in on
    assert count(browser, "#canvas .node.path") >= 3
    assert count(browser, "#canvas .edge.path") >= 2
    assert "to=while%2Fadd" in browser.value("location.hash")
    browser.click("#path-clear")
    assert count(browser, "#canvas .path") == 0


def test_where_there_is_no_path_the_panel_says_so(page: Any) -> None:
    browser = page("show", GRAPHS / "counter.pb", address="#node=count&from=count&to=n")
    assert "only a path in the other direction" in text(browser, "#details")


@pytest.mark.parametrize(("button", "ending", "start"), [
    ("#save-svg", "svg", b"<svg"), ("#save-png", "png", b"\x89PNG"),
])  # fmt: skip
def test_the_picture_is_saved(
    button: str, ending: str, start: bytes, page: Any, tmp_path: Path
) -> None:
    browser = page("show", GRAPHS / "counter.pb")
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.click(button)
    saved = tmp_path / f"counter.pb.{ending}"
    deadline = time.monotonic() + 30
    while not saved.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    data = saved.read_bytes()
    assert data.startswith(start)
    assert len(data) > 2000
    assert b"var(--" not in data


def test_a_range_of_the_timeline_is_added_up(page: Any) -> None:
    browser = page("run", GRAPHS / "counter.pb", "--feed", "n=5", "--fetch", "count",
                   "--clock", "virtual", address="#tab=timeline")  # fmt: skip
    box = browser.value(
        "(() => { const box = timeline.canvas.getBoundingClientRect(); return [box.x, box.y]; })()"
    )
    ends = [browser.value(f"xOf(run.end * {share})") for share in (0.25, 0.75)]
    for kind, x in (("mousePressed", ends[0]), ("mouseMoved", ends[1]), ("mouseReleased", ends[1])):
        browser.call("Input.dispatchMouseEvent", type=kind, x=box[0] + x, y=box[1] + 30,
                     button="left", buttons=1, modifiers=8)  # fmt: skip
    total = browser.value("run.slices.took.reduce((sum, one) => sum + one, 0)")
    selected = browser.value("sumBy(() => '')[0][1]")
    assert 0 < selected[0] < browser.value("run.events")
    assert 0 < selected[1] < total
    assert f"{selected[0]} tokens" in text(browser, "#sum")
    browser.click("#unselect")
    assert browser.value("chosenRange.from") is None


def test_a_search_on_the_timeline_adds_up_what_it_finds(page: Any) -> None:
    browser = page("run", GRAPHS / "counter.pb", "--feed", "n=5", "--fetch", "count",
                   "--clock", "virtual", address="#tab=timeline")  # fmt: skip
    browser.click("#search")
    browser.type("while/merge")
    merges = browser.value("run.slices.node.filter((n) => run.names[n] === 'while/Merge').length")
    assert merges == 6
    assert f"{merges} tokens" in text(browser, "#sum")
    assert browser.value("document.body.dataset.tab") == "timeline"
    assert browser.value("timeline.to - timeline.from < drawnEnd()")
    browser.value("showTab('graph')")
    assert browser.value("wantedNodes") is None


def test_a_real_timeline_fills_the_page_from_the_first_token_on(page: Any) -> None:
    options = ("--feed", "n=3", "--fetch", "count")
    browser = page("run", GRAPHS / "counter.pb", *options, address="#tab=timeline")
    first = browser.value("least(run.slices.start)")
    assert 0 <= first - browser.value("timeline.from") < 0.01 * browser.value("drawnEnd()")
    free = browser.value("timeline.element.clientHeight")
    assert 0.7 * free < browser.value("timeline.height") <= free


@pytest.mark.parametrize(
    ("wide", "tall", "shown"),
    [(100, 20, "a/long/name"), (50, 20, "name"), (30, 100, "a/long/name"), (30, 50, "name")],
)
def test_a_label_of_the_timeline_is_a_whole_name(
    wide: int, tall: int, shown: str, page: Any
) -> None:
    browser = page("run", GRAPHS / "counter.pb", "--feed", "n=3", "--fetch", "count")
    pen = """({ texts: [], save() {}, restore() {}, translate() {}, rotate() {},
        measureText: (text) => ({ width: 6 * text.length }),
        fillText(text) { this.texts.push(text); } })"""
    browser.value(f"ROW = {tall}; pen = {pen}; label(pen, {{}}, 'a/long/name', 0, 0, {wide})")
    assert browser.value("pen.texts") == [shown]
    browser.value("pen.texts = []; ROW = 20; label(pen, {}, 'a/long/name', 0, 0, 20)")
    assert browser.value("pen.texts") == []


def test_a_constant_has_statistics_and_a_histogram(page: Any, tmp_path: Path) -> None:
    b = cfgraph.Builder()
    b.Neg(b.const([float(i % 4) for i in range(100)], name="w"), name="y")
    cfgraph.save(b.graph, tmp_path / "graph.pb")
    browser = page("show", tmp_path / "graph.pb", address="#node=w")
    shown = text(browser, "#details")
    for part in ("elements100", "zeros25", "mean1.5", "least0", "greatest3", "0.0, 1.0, 2.0"):
        assert part in shown
    assert count(browser, "#details .bars rect") == 24
    browser.value("pick('n' + numbers.get('y'))")
    assert count(browser, "#details .bars rect") == 0


def test_crumbs_lead_to_the_boxes_around_a_selection(page: Any) -> None:
    browser = page("show", GRAPHS / "lstm_grad.pb", address="#node=lstm%2FSigmoid")
    boxes = ["lstm_grad.pb", "lstm/while_context", "lstm", "Sigmoid"]
    assert text(browser, "#crumbs").split(" \u203a ") == boxes
    browser.click("#crumbs a[data-group]")
    assert text(browser, "#crumbs").split(" \u203a ") == boxes[:2]
    assert text(browser, "#details h2") == "lstm/while_context"
    browser.click("#crumbs a[data-all]")
    assert browser.value("document.getElementById('crumbs').hidden")


def test_a_tap_by_the_end_of_a_name_is_on_the_page(page: Any, lstm: Path) -> None:
    browser = page("run", lstm, "--feed", "keras_tensor=f32[1,6,4]:ones", "--tap", "mul_2")
    assert browser.value("run.taps.map((tap) => tap.seen)") == [7]


def test_long_names_are_shown_below_the_scope_that_they_share(page: Any, lstm: Path) -> None:
    browser = page("run", lstm, "--feed", "keras_tensor=f32[1,6,4]:ones", "--tap", "*mul_2")
    inner = browser.value("nodes.find((node) => node.name.endsWith('lstm_cell_1/mul_2')).name")
    browser.value(f"pick('n' + numbers.get({inner!r}))")
    assert text(browser, "#details h2") == "\u2026/sequential_1/lstm_1/while/lstm_cell_1/mul_2"
    assert text(browser, "#details .below") == "below \u2026/sequential_1/lstm_1/while/:"
    shown = text(browser, "#details")
    for part in ("0 lstm_cell_1/Sigmoid_2:0", "Identity_4 input 0", "if live:Merge_3 & Less_1"):
        assert part in shown
    assert browser.value("document.querySelector('#details h2 a').title") == inner
    crumbs = text(browser, "#crumbs").split(" \u203a ")
    assert crumbs[-5:] == ["\u2026/while", "body", "\u2026/while", "lstm_cell_1", "mul_2"]
    browser.value("showTab('values')")
    assert text(browser, "#values .taps td") == "\u2026/lstm_1/while[0]"
    browser.value("sorting.key = 'node'; showTimes()")
    rows = browser.value("[...document.querySelectorAll('#totals td a')].map((a) => a.textContent)")
    assert {"while/body/sequential_1/lstm_1/while/lstm_cell_1/mul_2", "while/LoopCond"} <= {*rows}


def test_the_legend_is_open_until_it_is_closed_once(page: Any, browser: Chromium) -> None:
    opened = "document.getElementById('legend').open"
    page("show", GRAPHS / "counter.pb")
    browser.value("localStorage.clear()")
    page("show", GRAPHS / "counter.pb")
    assert browser.value(opened)
    browser.click("#legend summary")
    page("show", GRAPHS / "counter.pb")
    assert not browser.value(opened)
    browser.click("#legend summary")
    page("show", GRAPHS / "counter.pb")
    assert browser.value(opened)


def test_the_rest_of_a_lowered_model_is_in_a_closed_box_without_edges(
    page: Any, command: Any, fixtures: Path, tmp_path: Path
) -> None:
    shutil.unpack_archive(fixtures / "verdicts" / "lstm.zip", tmp_path)
    command("lower", tmp_path / "lstm", "-o", tmp_path / "lowered.pb")
    browser = page("show", tmp_path / "lowered.pb")
    (rest,) = browser.value("groups.flatMap((g, n) => g.kind === 'rest' ? [n] : [])")
    assert browser.value(f"groups[{rest}].label") == "not needed by serving_default"
    inside = browser.value(f"within({rest}).map((n) => nodes[n].name)")
    assert {"saver_filename", "serve_keras_tensor", "Variable/Assign"} <= {*inside}
    assert not {"serving_default_keras_tensor", "StatefulPartitionedCall_1"} & {*inside}
    assert browser.value(f"elementOf('g{rest}') !== null")
    assert browser.value(f"drawn.edges.every((e) => e.from !== 'g{rest}' && e.to !== 'g{rest}')")


def test_a_difference_is_drawn_with_its_neighbors_and_the_others_are_folded(
    command: Any, browser: Chromium, tmp_path: Path
) -> None:
    graph = cfgraph.load(GRAPHS / "lstm_grad.pb")
    graph.insert_after(graph["lstm/Sigmoid_2"], "Identity", name="lstm/copy")
    cfgraph.save(graph, tmp_path / "b.pb")
    file = tmp_path / "page.html"
    assert command("diff", GRAPHS / "lstm_grad.pb", tmp_path / "b.pb", "--html", file).code == 1
    browser.open(file)
    assert browser.complaints == []
    for name in ("lstm/copy", "lstm/Sigmoid_2", "lstm/mul_2"):
        assert drawn(browser, name)
        assert browser.value(
            f"(() => {{ const box = elementOf('n' + numbers.get({name!r})).getBoundingClientRect(),"
            " room = canvas.getBoundingClientRect(); return box.left >= room.left"
            " && box.right <= room.right && box.top >= room.top && box.bottom <= room.bottom; })()"
        )
    for name in ("lstm/Sigmoid_1", "x", "lstm/Merge"):
        assert not drawn(browser, name)
    assert count(browser, "#canvas .node") < 20
    assert count(browser, "#canvas .node.unchanged") >= 2
    assert browser.value("place.zoom") >= 0.75
    unfolded = browser.value("groups.every((g, n) => n === 0 || g.parent < n)")
    assert unfolded
    browser.click("#more")
    assert drawn(browser, "lstm/Merge")


@pytest.fixture
def edited(command: Any, tmp_path: Path) -> Path:
    """The counter with step two, another condition, and one node more."""
    text = command("convert", GRAPHS / "counter.pb", "--to", "graph").out
    text = text.replace("int32[]:1}", "int32[]:2}").replace("= Less(", "= LessEqual(")
    (tmp_path / "edited.graph").write_text(text + "extra = Neg(count)\n")
    return tmp_path / "edited.graph"


@pytest.mark.parametrize(("swapped", "status"), [(False, "added"), (True, "removed")])
def test_two_graphs_are_drawn_with_what_differs(
    swapped: bool, status: str, command: Any, edited: Path, browser: Chromium, tmp_path: Path
) -> None:
    files = [GRAPHS / "counter.pb", edited]
    file = tmp_path / "page.html"
    done = command("diff", *(reversed(files) if swapped else files), "--html", file)
    assert done.code == 1
    browser.open(file, "#node=while%2FLess")
    assert browser.complaints == []
    assert count(browser, "#canvas .node.changed") == 2
    assert browser.value("nodes[numbers.get('extra')].status") == status
    assert count(browser, f"#canvas .node.{status}") == 1
    for part in ("op", "LessEqual", "changed"):
        assert part in text(browser, "#details")
    browser.value("pick(null)")
    assert f"1 {status}" in text(browser, "#details")
    assert count(browser, "#details li a wbr") == 3


def test_the_legend_has_the_colors_that_are_drawn(
    command: Any, edited: Path, browser: Chromium, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    assert command("diff", GRAPHS / "counter.pb", edited, "--html", file).code == 1
    browser.open(file)
    assert "liveness" not in text(browser, "#signs")
    browser.value(
        "(() => { const choice = document.getElementById('colour'); choice.value = 'liveness';"
        " choice.dispatchEvent(new Event('change')); })()"
    )
    assert "same color: equal liveness" in text(browser, "#signs")


def test_a_whole_subgraph_that_was_removed_is_in_boxes(
    command: Any, browser: Chromium, tmp_path: Path
) -> None:
    files = [tmp_path / "long.pb", tmp_path / "short.pb"]
    for file, size in zip(files, (500, 3), strict=True):
        cfgraph.save(flat(size), file)
    page_file = tmp_path / "page.html"
    assert command("diff", *files, "--html", page_file).code == 1
    browser.open(page_file)
    assert browser.complaints == []
    assert browser.value("nodes.filter((node) => node.status === 'removed').length") == 497
    assert count(browser, "#canvas .node") < 200


def test_no_page_shows_a_comparison_of_runs(command: Any, tmp_path: Path) -> None:
    counter = GRAPHS / "counter.pb"
    assert command("diff", counter, counter, "--run", "--html", tmp_path / "page.html").code == 2
