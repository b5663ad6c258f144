from __future__ import annotations

from typing import Any

import pytest

from cfgraph.ir import dtypes
from cfgraph.ir.dtypes import DType, bool_, float32, float64, int32, int64, string
from cfgraph.ir.shapes import Shape
from cfgraph.ir.signature import MAX_COUNT, ArgDef, AttrDef, Signature


def test_arguments_have_a_type_a_count_and_perhaps_a_reference() -> None:
    signature = Signature("x: T, y: N*float32, r: Ref(T), l: L -> z: Ref(int32)", "L: list(type)")
    assert signature.inputs == (
        ArgDef("x", None, "T"),
        ArgDef("y", float32, None, "N"),
        ArgDef("r", None, "T", is_ref=True),
        ArgDef("l", None, "L"),
    )
    assert signature.outputs == (ArgDef("z", int32, None, is_ref=True),)


def test_arguments_are_in_host_memory_or_known_when_compiled() -> None:
    signature = Signature("x: T, sizes: host N*int32, axis: const Tidx -> y: T, n: host Ref(int32)")
    assert (signature.host_inputs, signature.constant_inputs) == ((1, 2), (2,))
    assert signature.host_outputs == (1,)
    assert signature.inputs[1] == ArgDef("sizes", int32, None, "N", memory="host")
    assert signature.outputs[1] == ArgDef("n", int32, None, is_ref=True, memory="host")


def test_attributes_that_are_only_named_are_declared() -> None:
    signature = Signature("x: N*T -> y: T")
    assert signature.attrs == {"T": AttrDef("T", "type"), "N": AttrDef("N", "int", minimum=1)}


@pytest.mark.parametrize("text", ["", "->", " -> "])
def test_an_op_may_have_nothing(text: str) -> None:
    signature = Signature(text)
    assert (signature.inputs, signature.outputs, signature.attrs) == ((), (), {})
    assert signature.simple_outputs == 0


ATTRS: list[tuple[str, AttrDef]] = [
    ("a: int", AttrDef("a", "int")),
    ("a: int >= 2", AttrDef("a", "int", minimum=2)),
    ("a: int >= -1 = 3", AttrDef("a", "int", 3, True, -1)),
    ("a: float = 0.5", AttrDef("a", "float", 0.5, True)),
    ("a: bool = false", AttrDef("a", "bool", False, True)),
    ("a: string = ''", AttrDef("a", "string", b"", True)),
    ("a: string = 'x, y'", AttrDef("a", "string", b"x, y", True)),
    ("a: type = float32", AttrDef("a", "type", float32, True)),
    ("a: shape = ?", AttrDef("a", "shape", Shape(None), True)),
    ("a: shape = [2,-1]", AttrDef("a", "shape", Shape((2, None)), True)),
    ("a: {int32, int64} = int32", AttrDef("a", "type", int32, True, None, (int32, int64))),
    ("a: {'min', 'max'}", AttrDef("a", "string", allowed=(b"min", b"max"))),
    ("a: list(type) >= 1", AttrDef("a", "list(type)", minimum=1)),
    ("a: list(int) = [1, 2]", AttrDef("a", "list(int)", (1, 2), True)),
    ("a: list(string) = []", AttrDef("a", "list(string)", (), True)),
    ("a: list({int32, string})", AttrDef("a", "list(type)", allowed=(int32, string))),
    ("a: func", AttrDef("a", "func")),
    ("a: tensor", AttrDef("a", "tensor")),
]


@pytest.mark.parametrize(("text", "expected"), ATTRS, ids=[row[0] for row in ATTRS])
def test_an_attribute_has_a_kind_bounds_and_a_default(text: str, expected: AttrDef) -> None:
    attrs = Signature("", f"before: int, {text}, after: bool").attrs
    assert list(attrs) == ["before", "a", "after"]
    assert attrs["a"] == expected


@pytest.mark.parametrize("text", ["a", "a: ", "a: int >=", "a: {", "a b: int"])
def test_a_malformed_attribute_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        Signature("", text)


def test_an_attribute_wins_over_a_type_of_its_name() -> None:
    signature = Signature("x: half -> y: half", "half: type")
    assert signature.inputs[0] == ArgDef("x", None, "half")


LISTS = Signature(
    "x: T, many: N*T, list: L, r: Ref(T) -> y: T, out: L, more: N*bool, s: Ref(T)", "L: list(type)"
)
FILLED: dict[str, Any] = {"T": float32, "N": 2, "L": (int32, string)}


def test_types_follow_from_attributes() -> None:
    ref = float32.ref
    assert LISTS.input_types(FILLED) == [float32, float32, float32, int32, string, ref]
    assert LISTS.output_types(FILLED) == [float32, int32, string, bool_, bool_, ref]
    assert LISTS.simple_outputs is None
    assert Signature("-> a: T, b: int32").simple_outputs == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"T": None}, "attribute 'T' is not a type"),
        ({"T": 3}, "attribute 'T' is not a type"),
        ({"N": "2"}, "attribute 'N' is not a valid count"),
        ({"N": -1}, "attribute 'N' is not a valid count"),
        ({"N": MAX_COUNT + 1}, "attribute 'N' is 1048577, expected at most"),
        ({"L": (1, 2)}, "attribute 'L' is not a type"),
    ],
)
def test_attributes_of_another_kind_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LISTS.input_types(FILLED | change)


@pytest.mark.parametrize("name", ["T", "N", "L"])
def test_attributes_that_are_missing_are_named(name: str) -> None:
    attrs = {key: value for key, value in FILLED.items() if key != name}
    with pytest.raises(ValueError, match=f"attribute '{name}' is missing"):
        LISTS.input_types(attrs)


def test_a_default_stands_in_for_what_is_missing() -> None:
    signature = Signature("x: T -> y: out", "T: type = int64, out: type = float64")
    assert signature.input_types({}) == [int64]
    assert signature.output_types({"out": string}) == [string]
    assert signature.value("out", {}) is float64


def test_attributes_follow_from_types() -> None:
    assert Signature("x: T, y: T -> z: T").infer([float32, float32], {}) == {"T": float32}
    assert Signature("x: N*T -> z: T").infer([int32] * 3, {}) == {"N": 3, "T": int32}
    listed = Signature("x: L -> y: L", "L: list(type)")
    assert listed.infer([int32, string], {}) == {"L": (int32, string)}
    assert listed.infer([], {}) == {"L": ()}


def test_the_type_of_a_reference_is_that_of_its_base() -> None:
    signature = Signature("r: Ref(T), v: T -> out: Ref(T)")
    assert signature.infer([float32.ref, float32], {}) == {"T": float32}
    assert signature.infer([float32.ref, float32.ref], {}) == {"T": float32}


def test_the_first_input_of_known_type_determines_it() -> None:
    signature = Signature("x: N*T -> y: T")
    assert signature.infer([None, dtypes.bool_], {}) == {"N": 2, "T": bool_}


def test_an_undetermined_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="attribute 'T' is missing"):
        Signature("x: T -> y: T").infer([None], {})
    with pytest.raises(ValueError, match="attribute 'out' is missing"):
        Signature("x: T -> y: out").infer([int32], {})
    with pytest.raises(ValueError, match="got 2 inputs, expected 1"):
        Signature("x: T -> y: T").infer([int32, int32], {})


def test_explicit_attributes_stay() -> None:
    signature = Signature("x: T -> y: T")
    known = {"T": DType.from_number(57), "_note": b"n"}
    assert signature.infer([int32], known) == known
    assert known == {"T": DType.from_number(57), "_note": b"n"}
