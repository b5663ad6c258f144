from __future__ import annotations

import contextlib
import gzip
import pickle
import random
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cfgraph.ops  # noqa: F401 - fills the registry
from cfgraph.errors import InvalidInput
from cfgraph.ir import file_bytes
from cfgraph.ir.attrs import Func, Tensor
from cfgraph.ir.files import FORMATS, dumps, loads
from cfgraph.ir.graph import Graph
from cfgraph.ir.serde import graph_from_bytes
from tests.ir.wire import entry, field, message, node, varint

GRAPHS = Path(__file__).parents[2] / "fixtures" / "graphs"
REAL = ("counter", "cond_functional", "while_functional", "deadness_mismatch", "lstm")
# generous, for machines under load: what it guards against takes minutes or gigabytes
MAX_SECONDS = 10.0
MAX_MEMORY = 64 << 20


def real(name: str) -> bytes:
    return (GRAPHS / f"{name}.pb").read_bytes()


def real_text(name: str) -> bytes:
    return dumps(graph_from_bytes(real(name)), "graph")


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Fail where the block takes long, in time of the processor."""
    start = time.process_time()
    yield
    assert time.process_time() - start < MAX_SECONDS


@contextlib.contextmanager
def with_little_memory(limit: int = MAX_MEMORY) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def outcome(data: bytes, format: str | None = None) -> Graph | InvalidInput:
    """The graph, used in every way that a file can be used, or the error, printed."""
    with quickly():
        found = load(data, format)
        if isinstance(found, Graph):
            use(found)
        else:
            assert str(found)
            assert found.code is not None
    return found


def load(data: bytes, format: str | None) -> Graph | InvalidInput:
    try:
        return loads(data, format)
    except InvalidInput as error:
        return error


def use(graph: Graph) -> None:
    """Write a graph in all formats, and decode what is decoded on demand."""
    saved = dumps(graph)
    for kind in FORMATS:
        data = dumps(graph, kind)
        if data:
            again = dumps(loads(data, kind))
            assert again == saved or kind == "pbtxt"  # which has no unknown fields
    for function in graph.functions.values():
        assert function.definition is not None
    for each in graph:
        for value in each.attrs.values():
            if isinstance(value, Tensor):
                with contextlib.suppress(InvalidInput):
                    _ = value.array


def refused(data: bytes, format: str | None = None) -> InvalidInput:
    found = outcome(data, format)
    assert isinstance(found, InvalidInput)
    return found


def accepted(data: bytes, format: str | None = None) -> Graph:
    found = outcome(data, format)
    assert isinstance(found, Graph)
    return found


# -- nothing, garbage, half a file -----------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", gzip.compress(b""), b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(data: bytes) -> None:
    assert "the file is empty" in refused(data).message


GARBAGE = {
    "elf": b"\x7fELF\x02\x01\x01" + bytes(57),
    "png": b"\x89PNG\r\n\x1a\n" + bytes(30),
    "zip": b"PK\x03\x04\x14\x00" + bytes(30),
    "npy": b"\x93NUMPY\x01\x00v\x00{'descr': '|O'}",
    "pickle": pickle.dumps({"a": [1, 2]}),
    "zeros": bytes(1000),
    "ones": b"\xff" * 1000,
    "utf-16": "x = A()".encode("utf-16"),
    "random": random.Random(1).randbytes(5000),
    "json": b'{"node": []}',
    "html": b"<html><body></body></html>",
    "python": b"import os\nos.system('true')\n",
    "words": b"once upon a time",
    "newlines": b"x\n" * 1000,
    "quotes": b'"' * 100_000,
    "escapes": b'x = A() {a="' + b"\\" * 100_000,
    "brackets": b"x = A() {a=" + b"(" * 100_000,
    "braces": b"{" * 100_000,
    "shapes": b"x = A() {a=" + b"[" * 100_000,
    "pbtxt braces": b"node {" * 100_000,
    "pbtxt lists": b"node: [" * 100_000,
    "pbtxt strings": b'node { name: "' + b'\\"' * 50_000,
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_refused(kind: str) -> None:
    refused(GARBAGE[kind])


@pytest.mark.parametrize("name", REAL[:4])
def test_a_file_cut_at_any_length_is_refused_or_a_graph(name: str) -> None:
    data = real(name)
    kept = [length for length in range(len(data)) if isinstance(outcome(data[:length]), Graph)]
    assert len(kept) < len(data) / 10  # only between nodes can a cut go unseen


@pytest.mark.parametrize("name", REAL[:4])
def test_a_text_cut_at_any_length_is_refused_or_a_graph(name: str) -> None:
    data = real_text(name)
    for length in range(1, len(data), 3):
        outcome(data[:length])


def test_a_packed_file_cut_at_any_length_is_refused() -> None:
    data = gzip.compress(real("counter"))
    for length in range(2, len(data)):
        assert "gzip data are damaged" in refused(data[:length]).message


def test_damage_to_a_packed_file_is_found() -> None:
    data = bytearray(gzip.compress(real("counter")))
    for place in range(10, len(data)):
        data[place] ^= 0x10
        refused(bytes(data))
        data[place] ^= 0x10


# -- claims that are larger than the file ----------------------------------------------------------

HUGE = varint(2**31 - 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a" + HUGE,
        b"\x0a" + varint(2**63),
        b"\x0a\x06\x0a" + HUGE,
        b"\x12" + HUGE + b"\x0a",
        field(1, message((1, "x"), (2, "A")) + b"\x2a" + HUGE),
        field(1, node("x", "A", (5, b"\x0a\x01T\x12" + HUGE))),
        field(1, node("x", "A", (5, b"\x0a\x01T\x12\x07\x0a\x06\x1a" + HUGE))),
        b"\x08\x01\x12" + HUGE,
    ],
    ids=["node", "2^63", "name", "library", "attr", "value", "list", "meta"],
)
def test_a_claim_of_gigabytes_is_refused(data: bytes) -> None:
    with with_little_memory():
        refused(data)


def constant(dtype: int, dims: tuple[int, ...], *fields: tuple[int, bytes]) -> bytes:
    shape = b"".join(field(2, field(1, dim)) for dim in dims)
    tensor = message((1, dtype), (2, shape), *fields)
    attrs = [(5, entry("dtype", field(6, dtype))), (5, entry("value", field(8, tensor)))]
    return field(1, node("x", "Const", *attrs))


@pytest.mark.parametrize(
    "data",
    [
        constant(1, (2**31, 2**31, 2**31), (5, b"\0\0\x80?")),
        constant(1, (2**62,), (5, b"\0\0\x80?" * 2)),
        constant(2, (2**30,), (6, bytes(16))),
        constant(7, (2**30,), (8, b"a"), (8, b"b")),
        constant(7, (2**31,), (4, b"\x00" * 100)),
        constant(20, (2**31,), (14, b"")),
        constant(1, (1,) * 5_000, (5, b"\0\0\x80?")),
        constant(1, (2**31, 2**31, 0)),
    ],
    ids=["product", "size", "repeats", "strings", "content", "resources", "rank", "empty"],
)
def test_a_huge_constant_is_not_decoded(data: bytes) -> None:
    with with_little_memory():
        graph = accepted(data)
        with pytest.raises(InvalidInput):
            _ = graph["x"].attrs["value"].array


def test_a_huge_count_fills_no_memory() -> None:
    with with_little_memory():
        attrs = [(5, entry("num", field(3, 2**62))), (5, entry("T", field(6, 1)))]
        graph = accepted(field(1, node("x", "Unpack", *attrs)))
        assert graph["x"].output().dtype is None


def test_a_file_that_unpacks_to_far_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_bytes, "MAX_TRUSTED", 8 << 20)
    bomb = gzip.compress(bytes(200 << 20))
    with with_little_memory(48 << 20):
        error = refused(bomb)
    assert "unpack to more than" in error.message
    assert error.code == "CFG002"


def test_a_well_packed_graph_of_reasonable_size_is_trusted() -> None:
    data = field(1, node("x", "A", (5, entry("a", field(2, bytes(200_000))))))
    packed = gzip.compress(data)
    assert len(data) > file_bytes.MAX_RATIO * len(packed)
    accepted(packed, "pb")


def test_a_file_packed_twice_is_refused() -> None:
    refused(gzip.compress(gzip.compress(real("counter"))))


def test_bytes_after_the_packed_ones_are_refused() -> None:
    refused(gzip.compress(real("counter")) + b"more")


# -- nesting ---------------------------------------------------------------------------------------


def nested(levels: int) -> bytes:
    value = field(3, 1)
    for _ in range(levels):
        value = field(10, message((1, "f")) + field(2, entry("a", value)))
    return field(1, node("x", "A", (5, entry("a", value))))


def test_attributes_nested_too_deeply_are_refused() -> None:
    error = refused(nested(5000))
    assert "nested too deeply" in error.message


def test_types_nested_too_deeply_are_refused() -> None:
    kind = field(1, 1000)
    for _ in range(5000):
        kind = field(1, 3) + field(2, kind)
    assert "nested too deeply" in refused(field(1, node("x", "A", (7, kind)))).message


def test_variants_nested_too_deeply_are_refused() -> None:
    tensor = field(1, 21)
    for _ in range(5000):
        tensor = field(1, 21) + field(15, field(3, tensor))
    refused(field(1, node("x", "Const", (5, entry("value", field(8, tensor))))))


@pytest.mark.parametrize("repeats", [33, 200, 50_000])
def test_text_nested_too_deeply_is_refused(repeats: int) -> None:
    text = "x = A() {a=" + "@f{a=" * repeats + "1" + "}" * repeats + "}"
    assert "levels of nesting" in refused(text.encode()).message


def test_protobuf_text_nested_too_deeply_is_refused() -> None:
    text = 'node { attr { key: "a" value { ' + 'func { attr { key: "a" value { ' * 3000
    assert "nested too deeply" in refused(text.encode()).message


def test_a_graph_nested_too_deeply_to_be_read_again_is_not_written() -> None:
    for levels, listed in ((33, False), (25, True), (20_000, False)):
        value: object = 1
        for _ in range(levels):
            value = Func("f", {"a": (value,) if listed and isinstance(value, Func) else value})
        graph = Graph()
        graph.create("x", "A", attrs={"a": value})
        for kind in FORMATS:
            with pytest.raises(InvalidInput, match="nested too deeply"):
                dumps(graph, kind)


def test_attributes_nested_as_deeply_as_can_be_read_are_written() -> None:
    accepted(nested(32))
    assert isinstance(load(nested(33), None), InvalidInput)


# -- graphs that are none --------------------------------------------------------------------------


def test_a_cycle_without_a_loop_is_loaded_for_check_to_report() -> None:
    graph = accepted(b"a = Identity(b)\nb = Identity(a)\nc = Identity(c)\nd = NoOp(^d)\n")
    assert graph["a"].inputs[0].node is graph["b"]
    assert graph["d"].controls == (graph["d"],)


def test_a_long_chain_of_nodes_without_types_does_not_hang() -> None:
    count = 20_000
    lines = [f"n{place} = Identity(n{place + 1})" for place in range(count)]
    text = "\n".join([*lines, f"n{count} = Placeholder() {{dtype=float32}}"])
    with quickly():
        graph = loads(text.encode())
    assert all(graph[f"n{place}"].attrs for place in range(count))


def test_a_node_that_reads_many_nodes_without_types_does_not_hang() -> None:
    count = 5_000
    lines = [f"n{place} = Identity(n{place + 1})" for place in range(count)]
    inputs = ", ".join(f"n{place}" for place in range(count))
    text = "\n".join([f"all = IdentityN({inputs})", *lines, f"n{count} = P() {{dtype=float32}}"])
    with quickly():
        loads(text.replace("P()", "Placeholder()").encode())


def test_many_names_that_are_given_twice_are_refused() -> None:
    error = refused(field(1, node()) * 20_000)
    assert len(error.findings) == 19_999
    assert error.code == "CFG104"


def test_many_inputs_that_lead_nowhere_are_refused() -> None:
    nodes = [node(f"node_{place}", "A", (3, f"nod_{place}")) for place in range(10_000)]
    error = refused(b"".join(field(1, item) for item in nodes))
    assert len(error.findings) == 10_000
    assert error.code == "CFG105"
    assert error.hint is not None
    assert error.hint.startswith("did you mean 'node_0'")


def test_names_of_megabytes_are_not_shown() -> None:
    name = "n" * (4 << 20)
    for data in (
        field(1, node(name + "!")),
        field(1, node(name)) * 2,
        field(1, node("x", "A", (3, name))),
        field(1, node("x", "A")) + field(1, node(name, "A", (3, name + "?"))),
    ):
        error = refused(data)
        assert len(str(error)) < 50_000
    error = refused(("x = A() {a=" + name + "}").encode())
    assert len(str(error)) < 1000


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "-a", "/a", ">a", "a:0", "^a", "a\n", "é", "a,b", "\x00"]
)
def test_a_node_with_a_bad_name_is_refused(name: str) -> None:
    assert refused(field(1, node(name)), "pb").code == "CFG102"


@pytest.mark.parametrize("text", ["", "^", ":", ":0", "x:", "x:-1", "x:1x", "^x:0", "^^x", "x :0"])
def test_an_input_with_a_bad_name_is_refused(text: str) -> None:
    data = field(1, node("x")) + field(1, node("y", "A", (3, text)))
    assert refused(data).code == "CFG105"


def test_an_output_of_any_number_is_loaded_for_check_to_report() -> None:
    number = 10**18
    graph = accepted(field(1, node("x")) + field(1, node("y", "A", (3, f"x:{number}"))))
    assert graph["y"].inputs[0].port == number


@pytest.mark.parametrize("digits", [30, 10_000])
def test_an_output_of_too_many_digits_is_refused(digits: int) -> None:
    data = field(1, node("x")) + field(1, node("y", "A", (3, "x:" + "9" * digits)))
    assert refused(data).code == "CFG105"


# -- damage at random ------------------------------------------------------------------------------

LENIENT = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@LENIENT
@given(st.data())
def test_flipped_bytes_are_refused_or_a_graph(data: st.DataObject) -> None:
    file = bytearray(real(data.draw(st.sampled_from(REAL))))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    outcome(bytes(file))


@LENIENT
@given(st.data())
def test_bytes_moved_about_are_refused_or_a_graph(data: st.DataObject) -> None:
    file = real(data.draw(st.sampled_from(REAL)))
    places = st.integers(0, len(file))
    start, stop, target = data.draw(st.tuples(places, places, places))
    outcome(file[:target] + file[start:stop] + file[target:])
    outcome(file[:start] + file[stop:])


SIGNS = '{}[]()=,:"@$?#^\\-+>*. \n\t09aeT'


@LENIENT
@given(st.data())
def test_changed_text_is_refused_or_a_graph(data: st.DataObject) -> None:
    text = real_text(data.draw(st.sampled_from(REAL))).decode()
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 3))
        new = data.draw(st.text(st.one_of(st.sampled_from(SIGNS), st.characters()), max_size=3))
        text = text[:place] + new + text[place + gone :]
    outcome(text.encode(errors="surrogatepass"), "graph")


@LENIENT
@given(st.text(st.sampled_from(SIGNS + "xA"), max_size=60))
def test_any_text_is_refused_or_a_graph(text: str) -> None:
    outcome(text.encode(), "graph")
    outcome(("x = A() {a=" + text).encode(), "graph")
    outcome(("function f(" + text).encode(), "graph")


@LENIENT
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_a_graph(data: bytes) -> None:
    outcome(data)
    outcome(data, "pb")
    outcome(field(1, node("x", "A", (5, entry("a", data)))), "pb")
    outcome(constant(1, (2,)) + field(1, data), "pb")


@LENIENT
@given(st.integers(0, 255), st.lists(st.integers(-2, 5), max_size=3), st.binary(max_size=40))
def test_any_tensor_is_refused_or_an_array(dtype: int, dims: list[int], data: bytes) -> None:
    lists = [(number, data) for number in (4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 18)]
    for number, content in lists:
        load_and_decode(constant(dtype, tuple(dims), (number, content)))


def load_and_decode(data: bytes) -> None:
    graph = load(data, "pb")
    if isinstance(graph, Graph):
        with contextlib.suppress(InvalidInput):
            _ = graph["x"].attrs["value"].array
        text = dumps(graph, "graph")
        assert dumps(loads(text, "graph")) == dumps(graph)


def test_the_checksum_of_a_packed_file_counts() -> None:
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(real("counter")) + packer.flush()
    assert np.array_equal(dumps(accepted(data)), dumps(graph_from_bytes(real("counter"))))
    refused(data[:-8] + bytes(4) + data[-4:])
