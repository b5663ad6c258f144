"""Device names: `/job:worker/replica:0/task:1/device:GPU:0`, or any part of that."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_PART: Final = re.compile(
    r"/(?:job:(?P<job>[A-Za-z]\w*)|replica:(?P<replica>\d+|\*)|task:(?P<task>\d+|\*)"
    r"|device:(?P<kind>[A-Za-z]\w*|\*)(?::(?P<number>\d+|\*))?"
    r"|(?P<short>[cg]pu|[CG]PU):(?P<place>\d+|\*))"
)


class DeviceName(NamedTuple):
    """A device name in its parts; None for what it leaves open."""

    job: str | None = None
    replica: str | None = None
    task: str | None = None
    kind: str | None = None
    number: str | None = None

    @classmethod
    def parse(cls, text: str) -> DeviceName | None:
        """The parts of a device name (`cpu:0` is `/device:CPU:0`); None if it is none."""
        parts: dict[str, str | None] = {}
        place, text = 0, text if text[:1] in ("/", "") else f"/{text}"
        while place < len(text.rstrip("/")):
            match = _PART.match(text, place)
            if match is None:
                return None
            found = {key: value for key, value in match.groupdict().items() if value is not None}
            if "short" in found:
                found = {"kind": found["short"], "number": found["place"]}
            if "kind" in found:
                found["kind"] = found["kind"].upper()
            parts.update((key, None if value == "*" else value) for key, value in found.items())
            place = match.end()
        return cls(**parts)

    def __str__(self) -> str:
        text = "".join(
            f"/{word}:{value}"
            for word, value in (("job", self.job), ("replica", self.replica), ("task", self.task))
            if value is not None
        )
        if self.kind is None:
            return text
        return f"{text}/device:{self.kind}:{'*' if self.number is None else self.number}"


def merge(inner: str, outer: str) -> str:
    """What `inner` asks for, and what `outer` asks for where `inner` leaves it open."""
    if not inner or not outer or inner == outer:
        return inner or outer
    mine, theirs = DeviceName.parse(inner), DeviceName.parse(outer)
    if mine is None or theirs is None:
        return inner
    merged = DeviceName(*(a if a is not None else b for a, b in zip(mine, theirs, strict=True)))
    if mine.kind is not None and mine.kind != theirs.kind:
        merged = merged._replace(number=mine.number)
    return inner if merged == mine else str(merged)
