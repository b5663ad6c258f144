from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.errors import InvalidInput, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.graph import CONTROL, Graph, Node, Output, Use
from cfgraph.ir.names import did_you_mean, misspelled_op_hint
from cfgraph.ir.node import split_tensor_name
from cfgraph.ir.text.parser import parse_graph
from cfgraph.ir.text.printer import print_graph


def recomputed_uses(graph: Graph) -> dict[Node, set[Use]]:
    """The uses of every node, derived from the edges of their readers."""
    uses: dict[Node, set[Use]] = {node: set() for node in graph}
    for node in graph:
        for slot, source in enumerate(node.inputs):
            uses[source.node].add(Use(node, slot))
        for control in node.controls:
            uses[control].add(Use(node, CONTROL))
    return uses


class Edits(RuleBasedStateMachine):
    """Random edits of a graph; nodes and ports are drawn by index."""

    def __init__(self) -> None:
        super().__init__()
        self.graph = Graph()
        self.edits = 0

    def node(self, number: int) -> Node:
        return list(self.graph)[number % len(self.graph)]

    def ports(self, numbers: list[int]) -> list[Output]:
        return [self.node(number).output(number % 3) for number in numbers]

    @rule(inputs=st.lists(st.integers(0, 99), max_size=3), controls=st.lists(st.integers(0, 99)))
    def create(self, inputs: list[int], controls: list[int]) -> None:
        before = bool(len(self.graph))
        self.graph.create(
            self.graph.unique_name("n"),
            "Thing",
            self.ports(inputs) if before else (),
            [self.node(number) for number in controls] if before else (),
        )

    @precondition(lambda self: len(self.graph))
    @rule(number=st.integers(0, 99), inputs=st.lists(st.integers(0, 99), max_size=4))
    def set_inputs(self, number: int, inputs: list[int]) -> None:
        node, ports = self.node(number), self.ports(inputs)
        self.graph.set_inputs(node, iter(ports))
        assert node.inputs == tuple(ports)

    @precondition(lambda self: len(self.graph))
    @rule(number=st.integers(0, 99), slot=st.integers(0, 9), source=st.integers(0, 99))
    def set_input(self, number: int, slot: int, source: int) -> None:
        node = self.node(number)
        if slot >= len(node.inputs):
            with pytest.raises(IndexError):
                self.graph.set_input(node, slot, self.node(source).output())
            return
        self.graph.set_input(node, slot, self.ports([source])[0])
        assert node.inputs[slot] == self.ports([source])[0]

    @precondition(lambda self: len(self.graph))
    @rule(number=st.integers(0, 99), controls=st.lists(st.integers(0, 99), max_size=4))
    def set_controls(self, number: int, controls: list[int]) -> None:
        nodes = [self.node(each) for each in controls]
        self.graph.set_controls(self.node(number), iter(nodes))
        assert self.node(number).controls == tuple(dict.fromkeys(nodes))

    @precondition(lambda self: len(self.graph))
    @rule(number=st.integers(0, 99), before=st.integers(0, 99))
    def add_control(self, number: int, before: int) -> None:
        self.graph.add_control(self.node(number), self.node(before))
        assert self.node(number).controls.count(self.node(before)) == 1

    @precondition(lambda self: len(self.graph))
    @rule(number=st.integers(0, 99), before=st.integers(0, 99))
    def remove_control(self, number: int, before: int) -> None:
        self.graph.remove_control(self.node(number), self.node(before))
        assert self.node(before) not in self.node(number).controls

    @precondition(lambda self: len(self.graph))
    @rule(old=st.integers(0, 99), new=st.integers(0, 99))
    def replace_uses(self, old: int, new: int) -> None:
        source, target = self.ports([old, new])
        expected = sum(item == source for node in self.graph for item in node.inputs)
        assert self.graph.replace_uses(source, target) == expected
        assert source == target or not source.node.readers(source.port)

    @precondition(lambda self: len(self.graph))
    @rule(number=st.integers(0, 99))
    def rename(self, number: int) -> None:
        node, order = self.node(number), list(self.graph)
        self.graph.rename(node, self.graph.unique_name("renamed"))
        assert list(self.graph) == order

    @precondition(lambda self: len(self.graph))
    @rule(numbers=st.lists(st.integers(0, 99), min_size=1, max_size=3))
    def remove(self, numbers: list[int]) -> None:
        nodes = [self.node(number) for number in numbers]
        stay = [node for node in self.graph if node not in nodes]
        if any(use.node in stay for node in nodes for use in node.uses):
            with pytest.raises(ValueError, match="still read"):
                self.graph.remove(*nodes)
            return
        self.graph.remove(*nodes)
        assert list(self.graph) == stay

    @invariant()
    def uses_are_true(self) -> None:
        assert {node: set(node.uses) for node in self.graph} == recomputed_uses(self.graph)

    @invariant()
    def names_are_true(self) -> None:
        assert all(name == node.name for name, node in self.graph.nodes.items())

    @invariant()
    def edits_are_counted(self) -> None:
        assert self.graph.edits >= self.edits
        self.edits = self.graph.edits

    @invariant()
    def readers_agree_with_uses(self) -> None:
        for node in self.graph:
            ports = {source.port for reader in self.graph for source in reader.inputs}
            readers = [use for port in ports for use in node.readers(port)]
            controls = [Use(reader, CONTROL) for reader in node.control_readers]
            assert {*readers, *controls} == set(node.uses)
            assert len(readers) + len(controls) == len(node.uses)

    @invariant()
    def text_form_is_lossless(self) -> None:
        text = print_graph(self.graph)
        again = parse_graph(text)
        assert print_graph(again) == text
        assert [node.inputs for node in again] == [
            tuple(again[source.node.name].output(source.port) for source in node.inputs)
            for node in self.graph
        ]


Edits.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestEdits = Edits.TestCase


@pytest.fixture
def graph() -> Graph:
    return parse_graph(
        """
        x = Placeholder() {dtype=float32}
        y = Identity(x)
        s = Switch(x, p)
        p = Placeholder() {dtype=bool}
        z = Mul(s, s:1, ^y)
        n = NoOp(^z)
        """
    )


def test_a_changed_op_keeps_the_attributes_that_it_has() -> None:
    graph = parse_graph(
        "x = Placeholder() {dtype=float32}\n"
        'y = LeakyRelu(x) {alpha=0.5, _class="loc:@x"}\n'
        'z = MatMul(x, x) {transpose_a=true, _class="loc:@x"}\n'
    )
    graph.set_op(graph["y"], "Relu6")
    assert graph["y"].attrs == {"T": dtypes.float32, "_class": b"loc:@x"}
    graph.set_op(graph["z"], "SparseMatMul")
    attrs = {"Ta": dtypes.float32, "Tb": dtypes.float32, "transpose_a": True, "_class": b"loc:@x"}
    assert graph["z"].attrs.items() >= attrs.items()
    with pytest.raises(InvalidInput, match="Neg"):
        graph.set_op(graph["z"], "Neg")
    assert graph["z"].op == "SparseMatMul"
    graph.set_op(graph["z"], "Mul", {"T": dtypes.float32})
    assert graph["z"].attrs == {"T": dtypes.float32}


@pytest.mark.parametrize(
    "edit",
    [
        lambda g: g.create("new", "NoOp"),
        lambda g: g.add("Neg", g["x"]),
        lambda g: g.set_input(g["y"], 0, g["s"].output()),
        lambda g: g.set_inputs(g["y"], ()),
        lambda g: g.set_controls(g["y"], ()),
        lambda g: g.add_control(g["y"], g["p"]),
        lambda g: g.remove_control(g["z"], g["y"]),
        lambda g: g.replace_uses(g["x"].output(), g["y"].output()),
        lambda g: g.set_attr(g["x"], "a", 1),
        lambda g: g.set_op(g["y"], "Neg", {"T": dtypes.float32}),
        lambda g: g.set_device(g["x"], "/cpu:0"),
        lambda g: g.reorder(reversed(list(g))),
        lambda g: g.rename(g["x"], "new"),
        lambda g: g.remove(g["n"]),
        lambda g: g.load([("new", "A", ("x",), "", {}, None)]),
    ],
)
def test_every_edit_is_counted(edit: object, graph: Graph) -> None:
    before = graph.edits
    edit(graph)  # type: ignore[operator]
    assert graph.edits > before
    assert {node: set(node.uses) for node in graph} == recomputed_uses(graph)


def test_a_graph_that_is_printed_says_how_large_it_is(graph: Graph) -> None:
    assert str(graph) == "<Graph of 6 nodes, 5 ops, 0 functions>"
    assert str(parse_graph("x = NoOp()")) == "<Graph of 1 node, 1 op, 0 functions>"


def test_a_new_node_takes_its_types_from_its_inputs(graph: Graph) -> None:
    node = graph.add("Mul", graph["x"], graph["y"].output(), name="x")
    assert node.name == "x_1"
    assert node.attrs == {"T": dtypes.float32}
    assert node.output().dtype is dtypes.float32
    assert graph.add("Mul", graph["x"], graph["y"], name="x").name == "x_2"


def test_a_new_node_has_its_own_attributes_and_not_equal_ones_of_another() -> None:
    graph = Graph()
    x = graph.add("Placeholder", dtype=dtypes.float32)
    slopes = [graph.add("LeakyRelu", x, alpha=alpha).attrs["alpha"] for alpha in (0.0, -0.0)]
    assert list(map(str, slopes)) == ["0.0", "-0.0"]


def test_a_list_is_held_as_a_tuple() -> None:
    graph = Graph()
    x = graph.add("Placeholder", dtype=dtypes.float32)
    squeezed = graph.add("Squeeze", x, squeeze_dims=[0, 1], _own=[b"a"])
    queue = graph.add("FIFOQueueV2", component_types=[dtypes.float32])
    unknown = graph.add("OpOfNoLibrary", x, sizes=[1])
    held = [squeezed.attrs["squeeze_dims"], squeezed.attrs["_own"]]
    assert held == [(0, 1), (b"a",)]
    assert (queue.attrs["component_types"], unknown.attrs["sizes"]) == ((dtypes.float32,), (1,))
    graph.set_attr(squeezed, "squeeze_dims", [2])
    assert squeezed.attrs["squeeze_dims"] == (2,)
    with pytest.raises(InvalidInput, match=r"'squeeze_dims' is list\(string\)"):
        graph.set_attr(squeezed, "squeeze_dims", [b"2"])


REJECTED_ATTRIBUTES = [
    ("transpose_a", "yes", "'transpose_a' is a Python str, MatMul expects bool", "CFG113"),
    ("transpose_a", 1, "'transpose_a' is int, MatMul expects bool", "CFG113"),
    ("T", dtypes.string, "'T' is string, not one of bfloat16", "CFG114"),
]


@pytest.mark.parametrize(("key", "value", "message", "code"), REJECTED_ATTRIBUTES)
def test_a_value_that_an_attribute_does_not_accept_is_refused(
    key: str, value: object, message: str, code: str, graph: Graph
) -> None:
    product = graph.add("MatMul", graph["x"], graph["x"], transpose_a=True)
    for edit in (
        lambda: graph.set_attr(product, key, value),
        lambda: graph.add("MatMul", graph["x"], graph["x"], attrs={key: value}),
    ):
        with pytest.raises(InvalidInput, match=message) as caught:
            edit()
        assert caught.value.code == code
    assert product.attrs["transpose_a"] is True
    with pytest.raises(InvalidInput, match="'N' is 0, expected at least 1"):
        graph.set_attr(graph.add("AddN", graph["x"]), "N", 0)


def test_some_readers_stay_when_the_others_read_another_tensor(graph: Graph) -> None:
    x, y, switch = graph["x"], graph["y"], graph["s"]
    copy = graph.add("Identity", x)
    assert graph.replace_uses(x, copy, except_=(copy, switch)) == 1
    assert [y.inputs[0].name, switch.inputs[0].name, copy.inputs[0].name] == [
        *("Identity:0", "x:0", "x:0")
    ]


def test_a_node_is_inserted_between_a_tensor_and_its_readers(graph: Graph) -> None:
    switch, product = graph["s"], graph["z"]
    graph.set_device(switch, "/cpu:1")
    node = graph.insert_after(switch.output(1), "AddV2", graph["x"], except_=())
    assert (node.name, node.device, node.attrs) == ("s/AddV2", "/cpu:1", {"T": dtypes.float32})
    assert [tensor.name for tensor in node.inputs] == ["s:1", "x:0"]
    assert [tensor.name for tensor in product.inputs] == ["s:0", "s/AddV2:0"]
    other = graph.insert_after(switch.output(1), "Neg", name="n/g", device="", except_=[node])
    assert (other.name, other.device, *other.uses) == ("n/g", "")
    with pytest.raises(InvalidInput, match="MatMul expects bool"):
        graph.insert_after(graph["x"], "MatMul", graph["x"], transpose_b="yes")
    assert len(graph) == 8


def test_colocation_follows_a_node_that_is_renamed(graph: Graph) -> None:
    for name in ("x", "y"):
        graph.set_attr(graph[name], "_class", (b"loc:@x", b"loc:@p", b"other"))
    graph.rename(graph["x"], "new")
    groups = [graph[name].attrs["_class"] for name in ("new", "y")]
    assert groups == [(b"loc:@new", b"loc:@p", b"other")] * 2


def test_a_new_node_whose_inputs_do_not_fit_is_refused(graph: Graph) -> None:
    with pytest.raises(InvalidInput, match="input 1 is p:0 of type bool") as caught:
        graph.add("Mul", graph["x"], graph["p"])
    assert caught.value.hint == "insert a Cast"
    with pytest.raises(InvalidInput, match="Mul"):
        graph.add("Mul", graph["x"])
    assert "Mul" not in graph


def test_a_name_that_is_taken_is_refused(graph: Graph) -> None:
    for edit in (lambda: graph.create("x", "A"), lambda: graph.rename(graph["y"], "x")):
        with pytest.raises(InvalidInput, match="two nodes have the name 'x'") as caught:
            edit()
        assert caught.value.code == "CFG104"
    graph.rename(graph["x"], "x")


def test_a_node_that_is_read_is_not_removed(graph: Graph) -> None:
    with pytest.raises(ValueError, match="'y' is still read by 'z'"):
        graph.remove(graph["y"])
    graph.remove(graph["n"], graph["z"], graph["y"])
    assert list(graph.nodes) == ["x", "s", "p"]
    assert [use.node.name for use in graph["x"].uses] == ["s"]


def test_a_node_is_not_removed_twice(graph: Graph) -> None:
    node = graph["n"]
    graph.remove(node, node)
    with pytest.raises(ValueError, match="'n' is not in the graph"):
        graph.remove(node)


def test_the_end_of_a_name_is_no_name_and_the_error_has_the_complete_one(graph: Graph) -> None:
    graph.create("outer/loop/clipped", "A")
    with pytest.raises(UsageError) as caught:
        graph.tensor("clipped:0")
    assert caught.value.hint == "write the complete name, 'outer/loop/clipped'"


def test_a_missing_node_names_a_similar_one(graph: Graph) -> None:
    graph.create("counter", "A")
    with pytest.raises(UsageError, match="no node 'countre' in the graph") as caught:
        _ = graph["countre"]
    assert caught.value.hint == "did you mean 'counter'?"


def test_a_missing_node_names_one_whose_end_is_similar(graph: Graph) -> None:
    first = graph.create("call/layer/while/body/cell/mul_2", "A").name
    graph.create("other/layer/while/body/cell/mul_2", "A")
    for end in ("mul_2", "cell/mul_2"):
        with pytest.raises(UsageError, match="no node") as caught:
            _ = graph[end.replace("2", "3")]
        assert caught.value.hint == f"did you mean {end!r}, as in {first!r}?"


@pytest.mark.parametrize(("name", "expected"), [("s", "s:0"), ("s:0", "s:0"), ("s:1", "s:1")])
def test_a_tensor_is_found_by_its_name(name: str, expected: str, graph: Graph) -> None:
    assert graph.tensor(name).name == expected
    assert str(graph.tensor(name)) == expected


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("s:2", "'s' (Switch) has 2 outputs, so output 2 does not exist", None),
        ("x:1", "'x' (Placeholder) has 1 output, so output 1 does not exist", None),
        ("n", "'n' (NoOp) has no outputs", "run it as a target: ^n"),
        ("^n", "'^n' names an operation, not a tensor", "write 'n' or 'n:0'"),
        ("nowhere:1", "no node 'nowhere' in the graph", "the graph has x, y, s, p and 2 more"),
    ],
)
def test_what_is_no_tensor_is_refused(
    name: str, message: str, hint: str | None, graph: Graph
) -> None:
    with pytest.raises(UsageError) as caught:
        graph.tensor(name)
    assert caught.value.message == message
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ("a", 0)),
        ("a:0", ("a", 0)),
        ("a:12", ("a", 12)),
        ("^a", ("a", None)),
        ("^a:1", ("^a", 1)),
        ("a:", ("a:", 0)),
        (":1", (":1", 0)),
        ("a:b:1", ("a:b", 1)),
        ("a:-1", ("a:-1", 0)),
        ("a:٣", ("a:٣", 0)),
    ],
)
def test_the_name_of_a_tensor_is_read_from_its_end(text: str, expected: object) -> None:
    assert split_tensor_name(text) == expected


def test_guessing_what_was_meant_is_bounded() -> None:
    assert did_you_mean("counte", ["counter"]) == "did you mean 'counter'?"
    assert did_you_mean("W", ["v", "w"]) == "did you mean 'w'?"
    assert did_you_mean("something else", ["counter"]) is None
    assert did_you_mean("n" * 1000, ["n" * 999]) is None
    assert did_you_mean("n1", (f"n{number}" for number in range(10**5))) is None


def test_an_attribute_falls_back_to_its_default(graph: Graph) -> None:
    enter = graph.add("Enter", graph["x"], name="enter", frame_name=b"f")
    assert enter.attr("parallel_iterations") == 10
    assert enter.attr("frame_name") == b"f"
    with pytest.raises(InvalidInput, match="attribute 'what' is missing") as caught:
        enter.attr("what")
    assert caught.value.node == "enter"


def test_all_faults_of_a_file_are_found_at_once() -> None:
    records = [
        ("x", "A", ("nowhere", "^x", "x"), "", {}, None),
        ("x", "A", (), "", {}, None),
        ("a b", "", (), "", {}, None),
    ]
    with pytest.raises(InvalidInput) as caught:
        Graph().load(records)
    codes = [finding.code for finding in caught.value.findings]
    assert codes == ["CFG104", "CFG103", "CFG102", "CFG105", "CFG106"]
    assert caught.value.message == "two nodes have the name 'x' (and 4 more faults)"


@given(st.lists(st.sampled_from(["a", "a_1", "a_2", "b"]), max_size=12))
def test_unique_names_are_unique(bases: list[str]) -> None:
    graph = Graph()
    for base in bases:
        graph.create(graph.unique_name(base), "A")
    assert len(graph) == len(bases)


def test_many_nodes_may_request_one_name() -> None:
    graph = Graph()
    for _ in range(20_000):
        graph.create(graph.unique_name("n"), "A")
    assert list(graph.nodes)[-1] == "n_19999"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("MatMull", "MatMul"),
        ("Addv2", "AddV2"),
        ("Relu_6", "Relu6"),
        ("LoopCnod", "LoopCond"),
        ("ReadVariable", "ReadVariableOp"),
        ("Conv3D", None),
        ("VariableV3", None),
        ("Svd", None),
        ("RandomShuffleQueue", None),
    ],
)
def test_a_typo_is_distinguished_from_another_op(written: str, meant: str | None) -> None:
    known = [
        "MatMul",
        "AddV2",
        "Relu6",
        "LoopCond",
        "ReadVariableOp",
        "Conv2D",
        "VariableV2",
        "Sub",
        "RandomShuffle",
    ]
    hint = misspelled_op_hint(written, [*known, "VariableV2", "Sub", "RandomShuffle"])
    assert hint == (meant and f"did you mean {meant!r}?")


def test_only_the_graph_itself_counts_its_edits(root: Path) -> None:
    counting = [
        file.relative_to(root).as_posix()
        for file in (root / "cfgraph").rglob("*.py")
        if re.search(r"\.edits [-+]?= ", file.read_text())
    ]
    # rollback undoes the edits of a pass that raises
    assert sorted(counting) == ["cfgraph/ir/graph.py", "cfgraph/passes/outcome.py"]


def test_a_part_whose_names_are_taken_is_not_taken_over() -> None:
    whole, other = Graph(), Graph()
    for graph in (whole, other):
        graph.add("NoOp", name="a")
    with pytest.raises(InvalidInput, match="two nodes have the name 'a'"):
        whole.absorb(other)
    other.rename(other["a"], "b")
    before = whole.edits
    whole.absorb(other)
    assert (list(whole.nodes), whole.edits > before) == (["a", "b"], True)
