from __future__ import annotations

import pytest

from cfgraph.errors import InvalidInput
from cfgraph.ir.text.parser import parse_graph

ERRORS = [
    (
        "x",
        "line 1, column 1: a node such as 'z = Mul(x, y)', or a function, was expected, found 'x'",
    ),
    ("x = A()\n\ny = B(x", "line 3, column 8: ',' or ')' was expected, found the end of the line"),
    ("x = A(", "line 1, column 7: an input was expected, found the end of the line"),
    ("x = ", "line 1, column 5: the op of the node was expected, found the end of the line"),
    ("x = A() {", "line 1, column 10: the name of an attribute was expected"),
    ("x = A() {a}", "line 1, column 11: '=' was expected, found '}'"),
    ("x = A() {a=1 b=2}", "line 1, column 14: ',' or '}' was expected, found 'b'"),
    ("x = A() {a=1, a=2}", "the attribute 'a' is set twice"),
    ("x = A() {a=what}", "line 1, column 12: a value was expected, found 'what'"),
    ("x = A() {a=}", "line 1, column 12: a value was expected, found '}'"),
    ('x = A() {a="b}', "line 1, column 12: the string is not terminated"),
    (r'x = A() {a="\q"}', "line 1, column 12: a valid escape was expected:"),
    ("x = A() {a=99999999999999999999}", "line 1, column 12: an integer from -9223372036854775808"),
    ("x = A() {a=9223372036854775808}", "an integer from"),
    (
        "x = A() {a=(1, 2.0)}",
        "line 1, column 16: an element of the same kind was expected, found '2.0'",
    ),
    ("x = A() {a=(1 2)}", "',' or ')' was expected"),
    ("x = A() {a=(())}", "an element of a list was expected"),
    ("x = A() {a=($T)}", "an element of a list was expected"),
    ('x = A() {a=(raw"")}', "an element of a list was expected"),
    ("x = A() {a=[2,-1]}", "an integer from 0"),
    ("x = A() {a=[2,x]}", "a list is written (int32, int64)), found 'x'"),
    ("x = A() {a=[2 3]}", "',' or ']' was expected"),
    ("x = A() {a=Ref(bad)}", "a value was expected, found 'Ref'"),
    ("x = A() {a=float32[?]:1}", "the known shape of a tensor was expected"),
    ("x = A() {a=float32[2]:[1]}", "line 1, column 25: ',' was expected, found ']'"),
    ("x = A() {a=float32[2]:[1,2,3]}", "']' was expected, found ','"),
    ("x = A() {a=float32[2]:[1,x]}", "a number was expected, found 'x'"),
    ("x = A() {a=float32[999999999999]:()}", "the elements of a float32[999999999999]"),
    ("x = A() {a=int8[]:300}", "an element is out of the range of int8"),
    ("x = A() {a=uint8[]:-1}", "the elements of a uint8[] were expected"),
    ("x = A() {a=bool[]:1}", "true or false was expected"),
    ("x = A() {a=complex64[]:x}", "a number such as 1.0+2.0j was expected"),
    ("x = A() {a=string[]:1}", "a string was expected"),
    ("x = A() {a=resource[]:()}", "a resource has no text form"),
    ('x = A() {a=float32[2]:raw"AAAA"}', "expected 8"),
    ('x = A() {a=raw"?"}', "line 1, column 15: base64 was expected"),
    ('x = A() {a=raw"AAAA"}', "line 1, column 12: an attribute that can be decoded was expected"),
    ('x = A() extra raw"AAAA"', "a node whose base64 can be decoded was expected"),
    ("x = A() type 3x", "line 1, column 14: a full type such as product[tensor[float]] was"),
    ("x = A() type tensor[", "the kind of a full type was expected, found the end of the line"),
    ("x = A() type tensor[float", "',' or ']' was expected, found the end of the line"),
    ("x = A() type var=T", "an integer was expected, found 'T'"),
    ("x = A() type " + "var[" * 200, "no more than 100 levels of nesting were expected"),
    ("x = A() type 99999999999", "a full type such as"),
    ('extra raw"AAAA"', "an extra that can be decoded was expected"),
    ("x = A() @cpu", "line 1, column 10: a device in quotes was expected, found 'cpu'"),
    (r'x = A() @"\xff"', "a device in quotes must be UTF-8"),
    ("x = A() {} y", "line 1, column 12: nothing more was expected, found 'y'"),
    ("x = A()) {}", "line 1, column 8: nothing more was expected, found ')'"),
    ("versions producer=x", "line 1, column 19: an integer was expected, found 'x'"),
    ("versions producer=99999999999", "an integer from -2147483648 to 2147483647 was expected"),
    ("versions what=1", "'producer', 'min_consumer' or 'bad_consumers' was expected"),
    ("versions bad_consumers=1", "numbers such as (1, 2) were expected"),
    ("versions bad_consumers=(true)", "numbers such as (1, 2) were expected"),
    ("gradient f = g\ngradient f = h", "line 2, column 12: the gradient of 'f' is defined twice"),
    ("function f() -> () {", "function 'f' is not closed: a line '}' was expected"),
    (
        "function f() -> () {\n}\nfunction f() -> () {\n}",
        "line 3, column 10: function 'f' is defined",
    ),
    ("function f() -> () {\nwhat\n}", "line 2, column 1: a node, 'return', or '}' was expected"),
    ("function f() -> () {}", "line 1, column 21: nothing more was expected, found '}'"),
    ("function f(x) -> () {\n}", "line 1, column 13: ':' was expected, found ')'"),
    ("function f(x: ) -> () {\n}", "a type, or the attribute that holds it was expected"),
    ("function f(x: T y: T) -> () {\n}", "',' or ')' was expected, found 'y'"),
    ("function f() -> () {\nreturn x = y\nreturn x = z\n}", "the output 'x' is returned twice"),
    ("function f() -> () {\ncontrol_return x\ncontrol_return x\n}", "'x' is returned twice"),
    ("function f() -> () {\nattr T: type\nattr T: type\n}", "'T' is declared twice"),
    ('function f raw"AAAA"', "a function that can be encoded was expected"),
    ("\x7f", "a node such as"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_an_error_says_where_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_graph(text)
    assert message in caught.value.message
    assert caught.value.message.startswith("line ")
    assert caught.value.code == "CFG004"


@pytest.mark.parametrize(
    ("text", "place", "hinted"),
    [("import x", "line 1, column 1", True), ("x = NoOp()\nx y", "line 2, column 1", False)],
)
def test_a_text_that_starts_with_no_graph_names_the_formats(
    text: str, place: str, hinted: bool
) -> None:
    with pytest.raises(InvalidInput, match=place) as caught:
        parse_graph(text)
    assert ("SavedModels" in (caught.value.hint or "")) == hinted


def test_faults_of_the_graph_are_all_found() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_graph("x = A(nowhere)\nx = A()\ny = B(^x, x)\n")
    codes = {finding.code for finding in caught.value.findings}
    assert codes == {"CFG104", "CFG105", "CFG106"}
