"""The text of --feed becomes an array that fits, or an error with the reason."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cfgraph
from cfgraph.analysis.feeds_and_fetches import require_feeds
from cfgraph.errors import CfgraphError, ExecutionError, InvalidInput, UsageError
from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Versions
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.limits import limited
from cfgraph.runtime.feeds.conversion import fit_dtype
from cfgraph.runtime.feeds.literals import generate, parse_literal
from cfgraph.runtime.feeds.parse_feeds import read_feeds


def graph_of(dtype: str = "float32", shape: tuple[int | None, ...] | None = None) -> Graph:
    graph = Graph()
    graph.add("Placeholder", name="x", dtype=DType.from_name(dtype), shape=Shape(shape))
    return graph


def fed(value: str, dtype: str = "float32", shape: tuple[int | None, ...] | None = None) -> Any:
    return read_feeds(graph_of(dtype, shape), [f"x={value}"])["x:0"]


def refusal(value: str, dtype: str = "float32", shape: tuple[int | None, ...] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        fed(value, dtype, shape)
    assert caught.value.message.startswith("feed x:0: ")
    return str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        ("float32", "3.5", 3.5),
        ("float32", "3", 3.0),
        ("float64", "-1e-300", -1e-300),
        ("float32", "[[1,2],[3,4]]", [[1, 2], [3, 4]]),
        ("float32", "[]", []),
        ("float32", "[[],[]]", [[], []]),
        ("float32", "[NaN, Infinity, -Infinity]", [np.nan, np.inf, -np.inf]),
        ("float32", "NaN", np.nan),
        ("float16", "65504", 65504),
        ("bfloat16", "[1.5]", [1.5]),
        ("float8_e4m3fn", "448", 448),
        ("int32", "1e3", 1000),
        ("int64", "9007199254740993", 9007199254740993),
        ("uint64", "18446744073709551615", 2**64 - 1),
        ("int4", "[-8, 7]", [-8, 7]),
        ("qint8", "-128", -128),
        ("bool", "[true, false]", [True, False]),
        ("complex64", "1+2j", 1 + 2j),
        ("complex128", '[1, 2.5, "3-1j", -1j]', [1, 2.5, 3 - 1j, -1j]),
        ("string", '"a=b:@[1]"', b"a=b:@[1]"),
        ("string", '["é", ""]', ["é".encode(), b""]),
    ],
)
def test_a_literal_becomes_what_the_placeholder_wants(dtype: str, text: str, value: Any) -> None:
    array = fed(text, dtype)
    assert array.dtype == DType.from_name(dtype).numpy
    assert array.shape == np.shape(value)
    np.testing.assert_array_equal(array, np.array(value, array.dtype))


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("f32[2,2]:[[1,2],[3,4]]", "float32", (2, 2)),
        ("float32:[1,2,3]", "float32", (3,)),
        ("DT_FLOAT[]:1", "float32", ()),
        ("i64[2]:[1,2]", "int64", (2,)),
        ("f32[2,3]:zeros", "float32", (2, 3)),
        ("str[2]:zeros", "string", (2,)),
        ("bf16[2]:ones", "bfloat16", (2,)),
    ],
)
def test_a_typed_value_has_the_type_it_says(text: str, dtype: str, shape: tuple[int, ...]) -> None:
    array = fed(text, dtype)
    assert array.dtype == DType.from_name(dtype).numpy
    assert array.shape == shape


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("i32[2,2]:zeros", [[0, 0], [0, 0]]),
        ("i32[2]:ones", [1, 1]),
        ("i32[2]:full(7)", [7, 7]),
        ("i32[2,2]:arange", [[0, 1], [2, 3]]),
    ],
)
def test_generators_make_what_their_names_say(text: str, value: Any) -> None:
    assert fed(text, "int32").tolist() == value


@pytest.mark.parametrize("what", ["uniform(-1,1)", "normal(0,1)", "uniform", "normal"])
def test_drawn_feeds_are_the_same_in_every_run_and_differ_by_name_and_seed(what: str) -> None:
    graph = graph_of()
    graph.add("Placeholder", name="y", dtype=dtypes.float32, shape=UNKNOWN_SHAPE)
    texts = [f"x=f32[1000]:{what}", f"y=f32[1000]:{what}"]
    one, again, other = (read_feeds(graph, texts, seed=seed) for seed in (0, 0, 1))
    assert one["x:0"].tobytes() == again["x:0"].tobytes()
    assert one["x:0"].tobytes() != one["y:0"].tobytes()
    assert one["x:0"].tobytes() != other["x:0"].tobytes()


def test_uniform_stays_in_its_range() -> None:
    array = fed("f64[1000]:uniform(2,3)", "float64")
    assert 2 <= array.min() < 2.1
    assert 2.9 < array.max() < 3
    assert set(fed("i32[1000]:uniform(-1,2)", "int32").tolist()) == {-1, 0, 1}


def test_a_generator_takes_the_type_and_sizes_of_the_placeholder() -> None:
    array = fed("ones", "int32", (2, 3))
    assert (array.dtype, array.shape) == (np.int32, (2, 3))


def test_two_feeds_of_a_tensor_are_refused() -> None:
    with pytest.raises(UsageError, match="feed x:0 has two values: x=1 and x:0=2"):
        read_feeds(graph_of(), ["x=1", "x:0=2"])


def test_any_tensor_can_be_fed() -> None:
    graph = graph_of("float32")
    graph.add("Identity", graph["x"].output(), name="y")
    assert read_feeds(graph, ["y=4"])["y:0"] == np.float32(4)


@pytest.mark.parametrize(
    ("value", "dtype", "says"),
    [
        ("3.5", "int32", "3.5 is not a valid int32"),
        ("300", "uint8", "300 is out of range for uint8 (0 to 255)"),
        ("-1", "uint8", "-1 is out of range"),
        ("8", "int4", "out of range for int4 (-8 to 7)"),
        ("1e39", "float32", "beyond the range of float32"),
        ("1e400", "float64", "beyond the range of float64"),
        ("70000", "float16", "beyond the range of float16"),
        ("449000", "float8_e4m3fn", "beyond the range"),
        ("Infinity", "float8_e4m3fn", "has no infinity"),
        ("NaN", "int32", "NaN is not a valid int32"),
        ("true", "int32", "true is not a valid int32"),
        ("1", "bool", "write true or false"),
        ("1", "string", 'write strings in quotes: "text"'),
        ('"a"', "float32", '"a" is not a valid float32'),
        ("hello", "string", 'quote a string: "hello"'),
        ("[hello]", "string", 'quote a string: ["hello"]'),
        ("[[two words, 'b'],[\"c,d\", e]]", "string", '[["two words", "b"],["c,d", "e"]]'),
        ("[hello", "string", 'quote a string: "[hello"'),
        ('"\\ud800"', "string", "half of a surrogate pair"),
        ("1+2x", "complex64", "is not a complex number"),
        ("null", "float32", "null is not a valid float32"),
        ('{"a": 1}', "float32", "an object is not a valid float32"),
        ("[1,[2]]", "float32", "ragged"),
        ("[[1],[2,3]]", "float32", "ragged: lists of 1 and 2 elements at depth 1"),
        ("[1,", "float32", "at character"),
        ("__import__('os')", "float32", "cannot read the value"),
        ("f99:3", "float32", "unknown dtype 'f99'"),
        ("f32[?]:zeros", "float32", "write all sizes"),
        ("f32[-1]:zeros", "float32", "write all sizes"),
        ("f32[2]:[1,2,3]", "float32", "dimension 0 is 3, expected 2"),
        ("zeros", "float32", "has unknown dimensions"),
        ("f32[2]:uniform(1)", "float32", "takes two arguments"),
        ("f32[2]:uniform(a,b)", "float32", "needs numbers"),
        (f"f32[2]:uniform({'[' * 3000})", "float32", "[…) needs numbers"),
        ("f32[2]:uniform(2,1)", "float32", "empty range"),
        ("i32[2]:uniform", "int32", "needs a range"),
        ("i32[2]:uniform(0.5,2)", "int32", "is not a range of int32"),
        ("i32[2]:normal", "int32", "does not support dtype int32"),
        ("str[2]:ones", "string", "does not support dtype string"),
        ("u8[300]:arange", "uint8", "out of range"),
        ("f32[2]:full", "float32", "full takes one argument"),
        ("f32[99999999999]:zeros", "float32", "takes more than"),
        ("f64:3.5", "int32", "3.5 is not a valid int32"),
        ("1", "variant", "have no literals"),
        ("[" * 50 + "]" * 50, "float32", "more than 32 deep"),
        ("[" * 100_000, "float32", "nested more than 100 deep"),
        ("1" * 5000, "int64", "cannot read the value"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(value: str, dtype: str, says: str) -> None:
    assert says in refusal(value, dtype)


@pytest.mark.parametrize(
    ("value", "shape", "says"),
    [
        ("f32[2,5]:zeros", (None, 4), "dimension 1 is 5, expected 4 (expected [?,4], got [2,5])"),
        ("3.5", (2,), "the shape is [], expected [2]"),
        ("[1,2]", (), "the shape is [2], expected []"),
    ],
)
def test_a_wrong_shape_names_the_dimension(
    value: str, shape: tuple[int | None, ...], says: str
) -> None:
    assert says in refusal(value, shape=shape)


def test_a_scalar_shape_of_an_old_producer_means_any_shape() -> None:
    graph = graph_of(shape=())
    graph.versions = Versions(21, 0, ())
    assert read_feeds(graph, ["x=[1,2]"])["x:0"].shape == (2,)


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("y=1", "feed y: no node 'y'", "inputs of the graph: x"),
        ("xx=1", "feed xx: no node 'xx'", "did you mean 'x'?"),
        ("x:1=1", "feed x:1: 'x' (Placeholder) has 1 output", ""),
        ("^x=1", "feed ^x: '^x' names an operation", ""),
        ("x", "'x' is not a valid feed", "NAME=VALUE"),
        ("x=", "x has no value", "x=3.5"),
        ("=1", "'=1' is not a valid feed", "NAME=VALUE"),
    ],
)
def test_a_wrong_name_is_a_usage_error_with_a_hint(text: str, says: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_feeds(graph_of(), [text])
    assert caught.value.message.startswith(says)
    assert hint in (caught.value.hint or "")


# -- files -------------------------------------------------------------------------------------


def saved(folder: Path, array: Any, name: str = "x.npy") -> Path:
    path = folder / name
    np.save(path, array)
    return path


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.float32(3.5),
        np.zeros((0, 3), np.float32),
    ],
    ids=["plain", "fortran", "big endian", "scalar", "empty"],
)
def test_an_npy_file_is_fed_as_it_is(tmp_path: Path, array: Any) -> None:
    found = fed(f"@{saved(tmp_path, array)}")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.asarray(array))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4"])
def test_an_npy_file_keeps_the_types_that_numpy_does_not_name(tmp_path: Path, dtype: str) -> None:
    array = np.array([1, -2], getattr(ml_dtypes, dtype))
    assert fed(f"@{saved(tmp_path, array)}", dtype).tolist() == [1, -2]


def test_strings_come_from_npy_files_of_bytes_or_text(tmp_path: Path) -> None:
    assert fed(f"@{saved(tmp_path, np.array([b'a', b'bc']))}", "string").tolist() == [b"a", b"bc"]
    assert fed(f"@{saved(tmp_path, np.array(['é']))}", "string").tolist() == ["é".encode()]


def test_an_array_in_a_file_may_be_rounded_but_not_cut(tmp_path: Path) -> None:
    assert fed(f"@{saved(tmp_path, np.float64(0.1))}") == np.float32(0.1)
    path = saved(tmp_path, np.array([0.5]))
    assert "0.5 is not a valid int32" in refusal(f"@{path}", "int32")
    assert "float64, expected bool" in refusal(f"@{path}", "bool")
    assert "out of range" in refusal(f"@{saved(tmp_path, np.array([300]))}", "uint8")
    assert "beyond" in refusal(f"@{saved(tmp_path, np.array([1e300]))}", "float32")


def test_an_npz_archive_feeds_one_array_or_all(tmp_path: Path) -> None:
    path = tmp_path / "all.npz"
    np.savez(path, **{"x": np.float32(1), "b/y:0": np.float32(2)})  # type: ignore[arg-type]
    graph = graph_of()
    graph.add("Placeholder", name="b/y", dtype=dtypes.float32, shape=UNKNOWN_SHAPE)
    assert read_feeds(graph, ["x=@" + f"{path}[b/y:0]"])["x:0"] == 2
    for feeds, archives in (([], [str(path)]), ([f"@{path}"], [])):
        assert read_feeds(graph, feeds, archives) == {"x:0": 1, "b/y:0": 2}
    assert read_feeds(graph, ["x=5"], [str(path)])["x:0"] == 5
    assert "several arrays" in refusal(f"@{path}")
    assert "did you mean" in refusal(f"@{path}[b/y]")


def test_a_json_file_feeds_all_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "feeds.json"
    path.write_text(json.dumps({"x": [[1, 2]]}))
    assert read_feeds(graph_of(), [], [str(path)])["x:0"].tolist() == [[1, 2]]
    path.write_text("[1]")
    with pytest.raises(InvalidInput, match="no JSON object"):
        read_feeds(graph_of(), [], [str(path)])


def test_raw_bytes_are_read_little_endian(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(np.array([1, 2], "<f4").tobytes())
    assert fed(f"f32[2]@{path}").tolist() == [1, 2]
    with pytest.raises(InvalidInput, match="takes 12 bytes, the file has 8"):
        fed(f"f32[3]@{path}")


def test_an_array_is_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.BytesIO()
    np.save(data, np.float32(7))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data.getvalue())))
    assert fed("@-") == 7


class Explosive:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("something was unpickled",))


def pickled_npy() -> bytes:
    data = io.BytesIO()
    np.save(data, np.array([Explosive()], object))
    return data.getvalue()


def header(text: str) -> bytes:
    raw = text.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw


GOOD = io.BytesIO()
np.save(GOOD, np.arange(10.0))
HUGE = "{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976, 1000)}"
HOSTILE = {
    "empty": b"",
    "text": b"3.5",
    "a pickle": pickle.dumps([1, 2]),
    "a pickle in an array": pickled_npy(),
    "cut in the header": GOOD.getvalue()[:20],
    "cut in the data": GOOD.getvalue()[:-1],
    "too long": GOOD.getvalue() + b"x",
    "huge": header(HUGE),
    "negative": header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"),
    "an expression": header("{'descr': __import__('os'), 'fortran_order': False, 'shape': ()}"),
    "structured": header("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (0,)}"),
    "dates": header("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (0,)}"),
    "version 9": b"\x93NUMPY\x09\x00" + b"\0" * 20,
    "nested": header("(" * 5000),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_without_an_array_is_invalid_input_that_names_it(tmp_path: Path, what: str) -> None:
    path = tmp_path / "bad.npy"
    path.write_bytes(HOSTILE[what])
    with pytest.raises(InvalidInput) as caught:
        fed(f"@{path}", "float64")
    assert caught.value.path == str(path)
    if "pickle" in what:
        assert "never loaded" in caught.value.message


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", pickle.dumps(1)])
def test_a_bad_archive_is_invalid_input(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidInput):
        read_feeds(graph_of(), [], [str(path)])


def test_a_pickle_in_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", pickled_npy())
    with pytest.raises(InvalidInput, match="never loaded"):
        read_feeds(graph_of(), [], [str(path)])


def test_a_damaged_archive_is_invalid_input(tmp_path: Path) -> None:
    path = tmp_path / "all.npz"
    np.savez(path, x=np.arange(1000.0))
    data = bytearray(path.read_bytes())
    data[500] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match="damaged"):
        read_feeds(graph_of(), [], [str(path)])


def test_a_file_that_is_not_there_is_invalid_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file") as caught:
        fed(f"@{tmp_path}/nothing.npy")
    assert caught.value.exit_code == 3


# -- missing feeds -----------------------------------------------------------------------------


def test_all_missing_feeds_are_listed_at_once_ready_to_paste() -> None:
    graph = Graph()
    shapes: dict[str, Any] = {"a": (None, 4), "b": (), "c": None}
    for name, dtype in (("a", dtypes.float32), ("b", dtypes.bool_), ("c", dtypes.int32)):
        graph.add("Placeholder", name=name, dtype=dtype, shape=Shape(shapes[name]))
    unneeded = graph.add("Placeholder", name="d", dtype=dtypes.float32, shape=UNKNOWN_SHAPE)
    pack = graph.add("IdentityN", graph["a"], graph["b"], graph["c"], name="all")
    with pytest.raises(UsageError) as caught:
        require_feeds(graph, [pack.output()], [], set())
    assert caught.value.message == (
        "3 feeds are missing: a:0 (float32[?,4]), b:0 (bool[]), c:0 (int32)"
    )
    assert caught.value.hint == (
        "add --feed 'a=f32[1,4]:uniform(-1,1)' --feed b=true --feed 'c=i32[]:zeros'"
    )
    fed = {graph[name].output() for name in "abc"}
    require_feeds(graph, [pack.output()], [], fed)
    assert unneeded.output() not in fed


def test_many_missing_feeds_are_counted() -> None:
    graph = Graph()
    for number in range(20):
        graph.add("Placeholder", name=f"x{number}", dtype=dtypes.float32, shape=Shape(()))
    pack = graph.add("IdentityN", *graph, name="all")
    with pytest.raises(UsageError) as caught:
        require_feeds(graph, [pack.output()], [], set())
    assert caught.value.message.startswith("20 feeds are missing: x0:0 (float32[]), x1:0 (")
    assert caught.value.message.endswith(", x7:0 (float32[]), and 12 more")
    assert caught.value.hint == "add --feeds FILE.npz, which has an array for each name"


def test_the_options_that_are_offered_are_good_ones() -> None:
    for number in (1, 3, 7, 8, 9, 10, 14, 19):
        for shape in ((), (None, 2), None):
            dtype = DType.from_number(number)
            graph = graph_of(dtype.name, shape)
            with pytest.raises(UsageError) as caught:
                require_feeds(graph, [graph["x"].output()], [], set())
            option = (caught.value.hint or "").removeprefix("add --feed ").strip("'")
            assert read_feeds(graph, [option])["x:0"].dtype == dtype.numpy


def test_every_feed_error_has_a_code() -> None:
    for text in ("x=[1", "x=zeros", "y=1", "x", "x=@/nowhere.npy", 'x="a"'):
        with pytest.raises(CfgraphError) as caught:
            read_feeds(graph_of(), [text])
        assert (caught.value.code or "").startswith("CFG0")


@pytest.mark.filterwarnings("error")
def test_any_integer_is_a_seed() -> None:
    drawn = [
        generate("uniform", None, dtypes.float32, (4,), "x", seed).tolist()
        for seed in (-1, 0, 1, 2**64 - 2)
    ]
    assert len(set(map(tuple, drawn))) == 4


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("nrmal", "did you mean 'normal'?"),
        ("f32[2]:unifrm(0,1)", "did you mean 'uniform'?"),
        ("f32[2]", "as in f32[2]:zeros"),
        ("whatever", "f32[2,3]:zeros, ones, full, arange, uniform, normal"),
    ],
)
def test_a_misspelled_generator_gets_a_suggestion(value: str, hint: str) -> None:
    graph = Graph()
    graph.add("Placeholder", name="x", dtype=dtypes.float32)
    with pytest.raises(UsageError) as caught:
        read_feeds(graph, [f"x={value}"])
    assert hint in str(caught.value)


def test_a_placeholder_of_no_type_is_refused_when_it_runs() -> None:
    graph = cfgraph.loads(b"x = Placeholder() {dtype=(), shape=[]}\ny = Neg(x) {T=float32}\n")
    with pytest.raises(InvalidInput, match="x:0, which does not exist"):
        cfgraph.Session(graph).run("y:0", {"x:0": 1.0})


UNKNOWN = "u = Mystery()\ns = Const() {dtype=int32, value=int32[]:1}\n"


@pytest.mark.parametrize(
    ("node", "value", "expected"),
    [
        ("y = AddV2(u, s) {T=int32}", 3.0, np.int32(4)),
        ("y = ReadVariableOp(u) {dtype=float32}", 3, np.float32(3)),
        ("y = Neg(u) {T=float64}", 3, np.float64(-3)),
    ],
)
def test_an_output_of_an_unknown_op_is_fed_as_its_readers_expect(
    node: str, value: object, expected: Any
) -> None:
    result = cfgraph.Session(cfgraph.loads(f"{UNKNOWN}{node}\n".encode())).run("y", {"u": value})[0]
    assert (result, result.dtype) == (expected, expected.dtype)


@pytest.mark.parametrize(
    ("nodes", "value", "message"),
    [
        ("y = Assign(u, s) {T=int32}", 3, "expects the variable"),
        ("y = AddV2(u, s) {T=int32}", 3.5, "3.5 is not a valid int32"),
        ("y = AddV2(u, s) {T=int32}\nz = LogicalNot(u)", 3, "its readers expect bool, int32"),
        ("y = ReadVariableOp(u) {dtype=float32}", object(), "'object' is not a resource"),
        ("y = StackPushV2(u, s) {T=int32}", object(), "'object' is not a resource"),
        ("y = Identity(u) {T=string}", [object()], "the value is a object"),
        ("y = Identity(u) {T=string}", np.array([3], object), "the value is a int"),
        ("y = Identity(u) {T=string}", "\ud800", "not valid Unicode"),
    ],
)
def test_a_feed_that_no_reader_accepts_is_refused(nodes: str, value: object, message: str) -> None:
    graph = cfgraph.loads(f"{UNKNOWN}{nodes}\n".encode())
    with pytest.raises(UsageError) as caught:
        cfgraph.Session(graph).run("y", {"u": value})
    assert message in caught.value.message


def test_a_faulty_function_matters_to_the_runs_that_call_it() -> None:
    text = """
x = Placeholder() {dtype=float32, shape=[]}
y = XlaLaunch(x) {function=@f, Nresources=0, Targs=(float32), Tconstants=(), Tresults=(float32)}
z = Neg(x) {T=float32}
function f(x: float32) -> (r: float32) {
  a = Neg(a:y:0) {T=float32}
  return r = a:y:0
}
"""
    session = cfgraph.Session(cfgraph.loads(text.encode()))
    assert session.run("z", {"x": 1.0}) == [-1.0]
    with pytest.raises(InvalidInput, match="in a cycle"):
        session.run("y", {"x": 1.0})


def test_no_array_has_sizes_whose_product_overflows() -> None:
    huge = (0, 1 << 62, 1 << 62)
    with pytest.raises(UsageError, match="takes more than"):
        generate("zeros", None, dtypes.float32, huge, "x", 0)
    assert fed("f32[0,3,4]:zeros").shape == (0, 3, 4)


def test_a_fetched_value_counts_as_memory() -> None:
    text = b"c = Const() {dtype=float32, value=float32[4096,4096]:(0.0)}\n"
    session = cfgraph.Session(cfgraph.loads(text))
    with limited(max_memory=1 << 20), pytest.raises(ExecutionError) as caught:
        session.run("c")
    assert caught.value.code == "CFG713"


@pytest.mark.parametrize(
    ("text", "strict"),
    [(".1", "0.1"), ("-.5", "-0.5"), ("1.", "1.0"), ("+1e3", "1e3"), ("[.1, 2.]", "[0.1, 2.0]")],
)
def test_a_number_in_another_notation_is_that_of_its_json(text: str, strict: str) -> None:
    value, expected = (parse_literal(item, dtypes.float32) for item in (text, strict))
    assert value.tolist() == expected.tolist()


def test_an_array_has_no_form_of_an_invalid_type() -> None:
    with pytest.raises(UsageError, match="type invalid have no NumPy representation") as caught:
        fit_dtype(np.ones(2), DType.from_number(0))
    assert caught.value.code == "CFG034"
