"""`cfgraph partition`, and devices in `run` and `show`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cfgraph
from cfgraph.ir.devices import short_device_name

BODY_ON_GPU = ("--place", "*=cpu:0", "--place", "while/add*=gpu:0")


def cut(command: Any, counter: Path, *args: object, devices: str = "cpu:0,gpu:0") -> Any:
    return command("partition", counter, "--devices", devices, *args)


def table(text: str, title: str) -> list[list[str]]:
    """The rows of a table in a text, found by the first heading."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.split()[:1] == [title])
    rows = []
    for line in lines[start:]:
        if not line.startswith("  "):
            break
        rows.append(line.split())
    return rows


def test_a_partitioned_graph_runs_in_a_pipe(command: Any, counter: Path) -> None:
    done = cut(command, counter, *BODY_ON_GPU)
    assert done.code == 0
    graph = cfgraph.loads(done.data)
    assert {short_device_name(node.device) for node in graph} == {"cpu:0", "gpu:0"}
    assert graph["while/add"].device.endswith("GPU:0")
    run = command("run", "-", "--feed", "n=7", "--fetch", "count:0", stdin=done.data)
    assert (run.code, run.out.split()[-1]) == (0, "7")


def test_a_fan_out_lets_other_devices_send_the_predicate(command: Any, graphs: Path) -> None:
    done = cut(command, graphs / "eight_devices.pb", "--fan-out", "2", devices="cpu:0-7")
    # a predicate has one byte, the counter that each device reads has four
    predicates = [tuple(row[:2]) for row in table(done.err, "from")[1:] if row[4] in {"1", "5"}]
    assert predicates == [
        *[("cpu:0", "cpu:1"), ("cpu:0", "cpu:2"), ("cpu:1", "cpu:3"), ("cpu:1", "cpu:4")],
        *[("cpu:2", "cpu:5"), ("cpu:2", "cpu:6"), ("cpu:3", "cpu:7")],
    ]
    run = command("run", "-", "--feed", "n=7", "--fetch", "out7:0", stdin=done.data)
    assert (run.code, run.out.split()[-1]) == (0, "7.0")
    assert command("partition", str(graphs / "eight_devices.pb"), "--fan-out", "0").code == 2


def test_stderr_says_what_each_device_has_and_sends(command: Any, counter: Path) -> None:
    err = cut(command, counter, *BODY_ON_GPU).err
    assert err.startswith("partitioned  2 devices, ")
    rows = table(err.replace("gpu:0 (simulated)", "gpu:0"), "device")
    assert [row[0] for row in rows[1:]] == ["cpu:0", "gpu:0"]
    assert [row[2:4] for row in rows[1:]] == [["0", "0"], ["1", "0"]]
    assert "gpu:0 (simulated)" in err
    assert ["cpu:0", "gpu:0", "/while/while_context", "2", "5"] in table(err, "from")
    assert ["gpu:0", "cpu:0", "/while/while_context", "1", "4"] in table(err, "from")


def test_messages_of_many_loops_are_counted(command: Any, tmp_path: Path) -> None:
    lines = [
        f'e{i} = Enter(x) {{frame_name="f{i}"}}\nm{i} = Merge(e{i}, n{i})\n'
        f"l{i} = Less(m{i}, m{i})\nc{i} = LoopCond(l{i})\ns{i} = Switch(m{i}, c{i})\n"
        f"a{i} = Neg(s{i}:1)\nn{i} = NextIteration(a{i})\nr{i} = Exit(s{i}:0)\n"
        for i in range(30)
    ]
    graph = tmp_path / "loops.graph"
    graph.write_text("x = Placeholder() {dtype=float32, shape=[]}\n" + "".join(lines))
    places = "--place", "*=cpu:0", "--place", "a*=gpu:0"
    done = command("partition", graph, "--devices", "cpu:0,gpu:0", *places)
    assert (done.code, "and 20 more; --json lists them" in done.err) == (0, True), done.err


def test_quiet_says_nothing(command: Any, counter: Path) -> None:
    assert cut(command, counter, "-q").err == ""


def test_a_device_without_nodes_is_mentioned(command: Any, counter: Path) -> None:
    done = cut(command, counter, "--place", "*=cpu:0")
    assert "no nodes on gpu:0" in done.err
    assert "partitioned  1 device, 0 messages" in done.err


def test_what_was_moved_next_to_its_loop_is_reported(command: Any, counter: Path) -> None:
    done = cut(command, counter, *BODY_ON_GPU, "--place", "while/NextIteration=gpu:0")
    assert "moved to the devices of their loops: while/NextIteration to cpu:0" in done.err


def test_json_says_it_all(command: Any, counter: Path, tmp_path: Path) -> None:
    files = ("-o", tmp_path / "out.pb", "--dump-placement", tmp_path / "p.toml")
    reported = cut(command, counter, *BODY_ON_GPU, *files, "--json", "-q").json
    assert reported["schema"] == "cfgraph.partition/1"
    assert reported["inputs"][0]["nodes"] == 15
    assert reported["summary"]["devices"] == 2
    assert reported["summary"]["control_loops"] == 1
    cpu, gpu = reported["result"]["devices"]
    assert (cpu["simulated"], gpu["simulated"]) == (False, True)
    assert gpu["control_loops"] == ["/while/while_context"]
    assert sum(route["messages"] for route in reported["result"]["routes"]) == 3
    assert reported["result"]["decided"] == {"*=cpu:0": 13, "while/add*=gpu:0": 2}
    assert [item["kind"] for item in reported["artifacts"]] == ["graph", "placement"]


def test_a_placement_that_is_written_places_the_same_way_again(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    rules = tmp_path / "p.toml"
    lstm = graphs / "lstm.pb"
    first = cut(command, lstm, "--seed", "3", "--dump-placement", rules, devices="cpu:0-2")
    again = cut(command, lstm, "--rules", rules, devices="cpu:0-2")
    assert first.data == again.data
    assert 'by = "seed 3"' in rules.read_text()
    other = cut(command, lstm, "--rules", rules, "--place", "*=cpu:1", devices="cpu:0-2")
    assert "partitioned  1 device" in other.err


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--devices", "cup:0"), 2, "did you mean 'cpu'?"),
        (("--devices", "cpu:0", "--place", "*=gpu:0"), 2, "available: cpu:0"),
        (("--devices", "cpu:0", "--place", "gpu:0"), 2, "is not a rule"),
        (("--devices", "cpu:0", "--json"), 2, "-o FILE"),
        (("--place", "*=cpu:0"), 2, "--devices cpu:0,gpu:0"),
        (("--seed", "1"), 2, "--devices cpu:0,gpu:0"),
        (("--devices", "cpu:0", "--rules", "none.toml"), 3, "none.toml"),
        ((), 2, "--devices cpu:0,gpu:0"),
    ],
)
def test_what_is_wrong_leaves_with_its_code(
    args: tuple[str, ...], code: int, message: str, command: Any, counter: Path
) -> None:
    done = command("partition", counter, *args)
    assert done.code == code
    assert message in done.err


def test_nothing_is_written_when_it_fails(command: Any, graphs: Path, tmp_path: Path) -> None:
    files = ("-o", tmp_path / "out.pb", "--dump-placement", tmp_path / "p.toml")
    done = cut(command, graphs / "eight_devices.pb", *files, devices="gpu:0")
    assert done.code == 3
    assert "requests" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("graph", "placement", "message"),
    [
        ("p.pb", "p.pb", "the same file"),
        ("p.pb", "folder/../p.pb", "the same file"),
        ("parts/", "parts", "the same file"),
        ("parts/", "parts/manifest.json", "no such file"),
        ("folder/", "folder/manifest.json", "two outputs have the same path"),
        ("none/p.pb", "p.toml", "no such file"),
        ("p.pb", "none/p.toml", "no such file"),
        ("parts/", "folder", "it is a folder"),
        ("p.pb", "-", "standard output"),
    ],
)
def test_the_graph_and_its_placement_are_both_written_or_neither_is(
    graph: str,
    placement: str,
    message: str,
    command: Any,
    counter: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    done = cut(command, counter, "-o", graph, "--dump-placement", placement, devices="cpu:0")
    assert done.code == 2
    assert message in done.err.lower()
    assert [*tmp_path.rglob("*")] == [tmp_path / "folder"]


def test_a_placement_may_take_the_place_of_a_part_that_goes(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "parts"
    cut(command, counter, "-o", f"{folder}/", devices="cpu:1")
    (old,) = folder.glob("*.pb")
    done = cut(command, counter, "-o", folder, "--dump-placement", old, devices="cpu:0")
    assert done.code == 0
    assert old.read_text().startswith("schema")
    assert len([*folder.iterdir()]) == 3


def test_soft_lets_go_of_requests_with_a_warning(command: Any, graphs: Path) -> None:
    graph = graphs / "eight_devices.pb"
    assert cut(command, graph).code == 3
    done = cut(command, graph, "--soft")
    assert done.code == 0
    assert "warning: /device:CPU:7 cannot be used for" in done.err


# -- folders -------------------------------------------------------------------------------------


def test_a_folder_has_a_file_a_device_and_runs_as_one_graph(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    done = cut(command, counter, *BODY_ON_GPU, "-o", f"{tmp_path}/parts/")
    assert (done.code, done.data) == (0, b"")
    files = sorted(file.name for file in (tmp_path / "parts").iterdir())
    assert [name[-8:] for name in files] == ["CPU_0.pb", "GPU_0.pb", "est.json"]
    run = command("run", tmp_path / "parts", "--feed", "n=5", "--fetch", "count:0")
    assert (run.code, run.out.split()[-1]) == (0, "5")
    as_file = cut(command, counter, *BODY_ON_GPU)
    shown = [
        command("show", where, "--devices", stdin=as_file.data).out
        for where in ("-", f"{tmp_path}/parts/")
    ]
    assert shown[0] == shown[1]


def test_a_folder_has_one_digest_when_it_is_written_and_read(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    folder = f"{tmp_path}/parts/"
    reported = cut(command, counter, *BODY_ON_GPU, "-o", folder, "--json", "-q").json
    read = command("show", folder, "--json").json["inputs"][0]
    assert reported["artifacts"][0]["sha256"] == read["sha256"]
    assert read["format"] == "parts"


def test_a_folder_that_lacks_a_part_is_an_invalid_input(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    cut(command, counter, *BODY_ON_GPU, "-o", f"{tmp_path}/parts/")
    next((tmp_path / "parts").glob("*.pb")).unlink()
    done = command("run", tmp_path / "parts")
    assert done.code == 3
    assert "no such file" in done.err


# -- run and show --------------------------------------------------------------------------------


def test_run_places_and_partitions_on_the_way(command: Any, graphs: Path) -> None:
    graph = graphs / "eight_devices.pb"
    one = command("run", graph, "--fetch", "out7:0", "--fetch", "out0:0")
    many = command("run", graph, "--fetch", "out7:0", "--fetch", "out0:0", "--devices", "cpu:0-7")
    assert (one.code, many.code) == (0, 0)
    assert one.out == many.out


def test_run_places_by_rules(command: Any, counter: Path) -> None:
    options = ["run", counter, "--feed", "n=5", "--devices", "cpu:0,gpu:0", "--timeline"]
    options += ["--place", "*=cpu:0", "--trace"]
    done = command(*options, "--place", "while/add*=gpu:0")
    assert (done.code, done.out) == (0, "count:0  int32[]  = 5\n")
    on_gpu = [line.split() for line in done.err.splitlines() if "gpu:0 (simulated)" in line]
    assert any("while/add" in words for words in on_gpu)


def test_a_trace_calls_messages_dead_that_are_and_not_those_that_are_empty(
    command: Any, tmp_path: Path
) -> None:
    path = tmp_path / "g.graph"
    path.write_text(
        "p = Placeholder() {dtype=bool, shape=[]}\n"
        "x = Const() {dtype=float32, value=float32[]:2.0}\n"
        "either = Switch(x, p) {T=float32}\n"
        "then = Neg(either:1) {T=float32}\n"
        "other = Neg(x, ^x) {T=float32}\n"
        "done = NoOp(^x)\n"
    )
    options = ["--devices", "cpu:0-1", "--place", "*=cpu:0", "--place", "then=cpu:1"]
    options += ["--place", "done=cpu:1", "--target", "done", "--target", "then", "--trace"]
    done = command("run", path, "--feed", "p=false", *options)
    reported = [line.split() for line in done.err.splitlines()]
    ends = {words[2]: words[4:] for words in reported if words[3:4] in (["_Send"], ["_Recv"])}
    assert ends["either/send"] == ["dead", "to", "cpu:1"]
    assert ends["either/recv"] == ["dead"]
    assert ends["x/ctrl/send"] == ["0", "B", "to", "cpu:1"]


def test_rules_without_devices_to_place_on_are_refused(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=5", "--place", "*=cpu:0")
    assert done.code == 2
    assert "placement rules need more than one device" in done.err


def test_a_rule_that_no_node_of_a_run_matches_is_reported(command: Any, counter: Path) -> None:
    options = ["--devices", "cpu:0-1", "--feed", "n=5", "--place", "while/add=cpu:1"]
    done = command("run", counter, *options, "--place", "whle/add=cpu:1")
    assert done.code == 0
    reported = [line for line in done.err.splitlines() if "warning" in line]
    assert reported == [
        "warning: in this run no node matches whle/add=cpu:1; did you mean 'while/add'?"
    ]


def test_run_on_too_few_devices_is_refused_unless_soft(command: Any, graphs: Path) -> None:
    graph = graphs / "eight_devices.pb"
    args = ("run", graph, "--fetch", "out7:0", "--devices", "cpu:0-1")
    assert command(*args).code == 3
    assert command(*args, "--soft").code == 0


def test_show_reports_devices_and_messages_of_a_partitioned_graph(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    cut(command, counter, *BODY_ON_GPU, "-o", tmp_path / "cut.pb")
    text = command("show", tmp_path / "cut.pb").out
    assert "gpu:0 (simulated)" in text
    assert ["gpu:0", "cpu:0", "/while/while_context", "1", "4"] in table(text, "from")
    reported = command("show", tmp_path / "cut.pb", "--json").json["result"]["parts"]
    assert [item["nodes"] for item in reported["devices"]] == [
        int(row[1]) for row in table(text.replace(" (simulated)", ""), "device")[1:]
    ]


# -- the timeline --------------------------------------------------------------------------------


def lanes(err: str) -> dict[str, str]:
    lines = err[err.index("timeline") :].splitlines()
    return {line.split()[0]: line for line in lines[1:6] if line[:4] in ("cpu:", "gpu:")}


def test_a_timeline_has_a_lane_a_device_and_messages_between_them(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    cut(command, counter, *BODY_ON_GPU, "-o", tmp_path / "cut.pb")
    done = command("run", tmp_path / "cut.pb", "--feed", "n=2", "--timeline")
    assert done.code == 0
    assert "timeline" not in done.out
    found = lanes(done.err)
    assert list(found) == ["cpu:0", "gpu:0"]
    assert "(simulated)" in found["gpu:0"]
    assert "0" in found["cpu:0"].removeprefix("cpu:0")
    picture = done.err.splitlines()
    gap = picture[picture.index(found["cpu:0"]) + 1]
    assert set(gap.strip()) & set("↓↕")
    assert set(gap.strip()) & set("↑↕")
    assert all(len(line) <= 100 for line in picture[:6])


def test_a_timeline_of_a_failed_run_shows_how_far_it_came(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=9", "--timeline", "--max-iterations", "3")
    assert done.code == 5
    assert list(lanes(done.err)) == ["cpu:0"]


def test_the_answer_in_json_stays_whole_next_to_a_timeline(command: Any, counter: Path) -> None:
    done = command("run", counter, "--feed", "n=2", "--timeline", "--json")
    assert json.loads(done.out)["status"] == "ok"


def test_a_graph_that_is_not_placed_requires_devices(command: Any, counter: Path) -> None:
    done = command("partition", counter, "-o", "/dev/null")
    assert (done.code, "--devices cpu:0,gpu:0" in done.err) == (2, True)


def test_an_invalid_result_ends_the_command_as_a_bug(
    command: Any, counter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = cfgraph.Graph.create

    def create_broken(graph: Any, name: str, op: str, *rest: Any, **options: Any) -> Any:
        return create(graph, f"{name}?" if op == "_Send" else name, op, *rest, **options)

    monkeypatch.setattr(cfgraph.Graph, "create", create_broken)
    done = cut(command, counter, *BODY_ON_GPU)
    assert (done.code, done.data) == (70, b"")
    assert "partition made an invalid graph; this is a bug: CFG102 at node" in done.err


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("CFG109", "a = Neg(b) {T=float32} @A\nb = Neg(a) {T=float32} @A"),
        (
            "CFG221",
            "p = Placeholder() {dtype=bool, shape=[]} @A\nx = Switch(p, p) @A\n"
            "a = Identity(x) @A\nb = Identity(x:1, ^a) @A",
        ),
    ],
)
def test_a_fault_of_a_partitioned_graph_is_not_blamed_on_its_reader(
    command: Any, code: str, text: str
) -> None:
    devices = [f"/job:localhost/replica:0/task:0/device:CPU:{number}" for number in range(2)]
    key = 'tensor_name="k", send_device="@A", recv_device="@B", send_device_incarnation=1'
    text += f"""
c = Const() {{dtype=float32, value=float32[]:1}} @A
s = _Send(c) {{{key}}} @A
r = _Recv() {{tensor_type=float32, {key}}} @B"""
    for letter, device in zip("AB", devices, strict=True):
        text = text.replace(f'"@{letter}"', f'"{device}"').replace(f"@{letter}", f'@"{device}"')
    done = command("check", "-", stdin=text.encode())
    assert f"[{code}]" in done.out
    assert "partition the original graph again" in done.out
    assert "NextIteration" not in done.out


def test_a_folder_without_a_part_says_what_to_feed(
    command: Any, fixtures: Path, tmp_path: Path
) -> None:
    graph = fixtures / "graphs" / "eight_devices.pb"
    line = ("partition", graph, "--devices", "cpu:0-7", "-o", f"{tmp_path}/parts/")
    assert command(*line).code == 0
    manifest = json.loads((tmp_path / "parts" / "manifest.json").read_text())
    lost = next(part for part in manifest["parts"] if part["device"].endswith("CPU:3"))
    (tmp_path / "parts" / lost["file"]).unlink()
    manifest["parts"].remove(lost)
    (tmp_path / "parts" / "manifest.json").write_text(json.dumps(manifest))
    run = ("run", tmp_path / "parts", "--feed", "n=3", "--fetch")
    assert command(*run, "out7").out.endswith("= 3.0\n")
    failed = command(*run, "out3")
    assert (failed.code, "from cpu:3: the graph has no node there" in failed.err) == (5, True)
    assert "--feed 'Const_4/recv=VALUE'" in failed.err
    alone = command("run", tmp_path / "parts" / manifest["parts"][1]["file"])
    assert (alone.code, "name the folder that contains all parts, or fetch" in alone.err) == (
        *(2, True),
    )


def test_a_folder_shows_the_tensors_that_devices_send(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "parts"
    done = cut(command, graphs / "eight_devices.pb", "-o", str(folder), devices="cpu:0-7")
    assert done.code == 0, done.err
    shown, full = (command("show", str(folder), *more) for more in ((), ("--full",)))
    rows = [line.split() for line in full.lines]
    assert ["Const_2:0", "cpu:1", "cpu:0", "4", "B"] in rows
    assert ["while/LoopCond:0", "cpu:0", "cpu:7", "1", "B"] in rows
    assert "  and 8 more; --full prints them" in shown.lines
    assert "more; --full prints them" not in full.out
    tensors = command("show", str(folder), "--json").json["result"]["parts"]["tensors"]
    assert len(tensors) == 28
    (last,) = (item for item in tensors if item["to"].endswith("CPU:7") and item["bytes"] == 1)
    assert (last["tensor"], short_device_name(last["from"])) == ("while/LoopCond:0", "cpu:0")


@pytest.mark.parametrize(
    ("number", "sent", "outputs"), [(1, "while/add", 1), (0, "while/LoopCond, while/Identity", 0)]
)
def test_a_missing_part_is_named_with_what_it_must_send(
    command: Any, counter: Path, tmp_path: Path, number: int, sent: str, outputs: int
) -> None:
    folder = tmp_path / "parts"
    places = ("--place", "*=cpu:0", "--place", "while/add*=cpu:1")
    assert cut(command, counter, *places, "-o", f"{folder}/", devices="cpu:0-1").code == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["parts"] = [
        part for part in manifest["parts"] if not part["device"].endswith(f"CPU:{number}")
    ]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    shown = command("show", folder)
    assert f"the part of cpu:{number} is missing, and must send {sent}" in shown.lines
    assert shown.lines[-1] == f"  cfgraph check {folder}"
    document = command("show", folder, "--json").json["result"]
    assert document["parts"]["missing"] == {
        f"/job:localhost/replica:0/task:0/device:CPU:{number}": sent.split(", ")
    }
    assert len(document["outputs"]) == outputs
    checked = command("check", folder)
    assert f"hint: the missing part must send {sent}" in checked.out
    assert checked.out.startswith("warning[CFG434]")
    assert command("check", folder, "--fail-level", "warning").code == 1
    part = folder / manifest["parts"][0]["file"]
    assert command("check", part, "--fail-level", "warning").code == 0
    assert "Merge" not in checked.out + checked.err


def test_a_run_is_suggested_of_what_needs_no_missing_part(
    command: Any, graphs: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "parts"
    cut(command, graphs / "eight_devices.pb", "-o", f"{folder}/", devices="cpu:0-7")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["parts"] = [part for part in manifest["parts"] if part["device"][-1] != "1"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    line = command("show", folder).lines[-1].split()
    assert line[:2] == ["cfgraph", "run"]
    assert command(*line[1:]).code == 0
    assert "CFG224" not in command("check", folder).out


def test_variables_that_are_received_have_the_names_of_what_is_sent(
    command: Any, counter: Path, tmp_path: Path
) -> None:
    places = ("--place", "*=cpu:1", "--place", "n=cpu:0", "--place", "Const*=cpu:0")
    folder = tmp_path / "parts"
    cut(command, counter, *places, "-o", f"{folder}/", devices="cpu:0-1")
    whole, parts = (
        command("explain", graph, "while/while_context", "--json").json["result"]["loop"]
        for graph in (counter, folder)
    )
    names = [[item["name"] for item in loop["variables"]] for loop in (whole, parts)]
    assert names == [["Const_1", "n"], ["Const_1", "n"]]
    assert parts["condition"] == whole["condition"] == "Const_1 < n"


def test_a_part_whose_send_has_no_input_is_an_error(command: Any, tmp_path: Path) -> None:
    file = tmp_path / "part.graph"
    devices = [f"/job:localhost/replica:0/task:0/device:CPU:{index}" for index in (0, 1)]
    file.write_text(
        's = _Send() {T=float32, tensor_name="t", send_device_incarnation=1, '
        f'send_device="{devices[0]}", recv_device="{devices[1]}", client_terminated=false}}\n'
    )
    done = command("run", file)
    assert (done.code, "nothing to fetch" in done.err) == (2, True)
