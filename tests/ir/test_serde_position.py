from __future__ import annotations

import pytest

from cfgraph.errors import InvalidInput
from cfgraph.ir.files import loads
from tests.ir.wire import node_def, wire_field


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            wire_field(1, node_def())[:-1],
            "breaks off at byte 0: field 1 wants 10 bytes, 9 are left",
        ),
        (wire_field(1, node_def()) + b"\x0f", "breaks off at byte 12: 0x0f begins no field"),
        (
            wire_field(1, node_def()) + b"\x0a" + b"\xff" * 10,
            "breaks off at byte 13: a number has no end",
        ),
        (wire_field(1, node_def()) + b"\x18\x80", "breaks off at byte 13: a number has no end"),
        (
            wire_field(1, node_def()) + b"\x25abc",
            "breaks off at byte 12: field 4 wants 4 bytes, 3 are left",
        ),
        (
            wire_field(1, node_def("x", "A", (5, b"\x0a\x05T"))),
            "node[0].attr[0] breaks off at byte 10: field 1",
        ),
        (wire_field(4, b"\x08"), "versions breaks off at byte 3: a number has no end"),
    ],
)
def test_an_error_says_at_which_byte_and_in_which_field(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        loads(data, "pb")
    assert f"{len(data)} bytes are no GraphDef: {message}" in caught.value.message
    assert caught.value.code == "CFG003"


def test_text_that_is_not_utf8_says_where() -> None:
    second = node_def(b"\xff")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"node\[1\].name at byte 16 is not UTF-8"):
        loads(wire_field(1, node_def()) + wire_field(1, second))
    with pytest.raises(InvalidInput, match="line 2 is not UTF-8: it has the byte 0xe9"):
        loads(b"x = A()\n# caf\xe9\n")
