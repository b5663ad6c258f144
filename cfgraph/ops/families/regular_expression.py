"""RE2 regular expressions, translated to Python's `re`."""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from functools import cache
from typing import NamedTuple

from cfgraph.ops.opdef.op import OpError

_TOP = chr(sys.maxunicode)
_INVALID = "\udc80-\udcff"
_PERL = {"d": "0-9", "s": "\t\n\f\r ", "w": "0-9A-Za-z_"}
_NOT_PERL = {
    "d": f"\0-/:-\ud7ff\ue000-{_TOP}",
    "s": f"\0-\x08\x0b\x0e-\x1f!-\ud7ff\ue000-{_TOP}",
    "w": f"\0-/:-@\\[-\\^`{{-\ud7ff\ue000-{_TOP}",
}
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\0-\x7f",
    "blank": "\t ",
    "cntrl": "\0-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\t-\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REPEAT = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}")
_GROUP = re.compile(r"\(\?(?:P<(?P<name>\w+)>|(?P<on>[imsU]*)(?:-(?P<off>[imsU]+))?(?P<end>[:)]))")
_NUMBER = re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]+)\}|(0[0-7]{0,2}|[1-7][0-7]{1,2})")
_PROPERTY = re.compile(r"([pP])(?:([A-Z])|\{(\^?)(\w+)\})")
_MOST_REPEATS = 1000


@cache
def compile_pattern(pattern: bytes) -> re.Pattern[str]:
    """A pattern of RE2's. Raises OpError where it is none, or asks for what Python has not."""
    text = pattern.decode(errors="surrogateescape")
    try:
        return re.compile(_PatternTranslator(text).whole())
    except (re.error, _MalformedPattern) as error:
        message = f"Invalid pattern: {pattern.decode(errors='replace')}, error: {error}"
        raise OpError(message) from None


class _MalformedPattern(Exception):
    """Raised while translating, with RE2's word for it."""


class _PatternFlags(NamedTuple):
    """What the flags `imsU` are set to."""

    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False

    def changed(self, on: str, off: str) -> _PatternFlags:
        """These flags after some are set and some cleared."""
        return self._replace(**dict.fromkeys(on, True), **dict.fromkeys(off, False))


class _PatternTranslator:
    """One pattern on its way; reads from `place`, collects in `out`."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0
        self.flags, self.groups = _PatternFlags(), list[_PatternFlags]()
        self.out: list[str] = []
        # whether what was read last can be repeated
        self.repeatable = False

    def whole(self) -> str:
        """The pattern in Python's syntax."""
        while self.place < len(self.text):
            self.step()
        if self.groups:
            raise _MalformedPattern(f"missing ): {self.text}")
        return "".join(self.out)

    def step(self) -> None:
        """Translate one element."""
        char = self.text[self.place]
        repeat = _REPEAT.match(self.text, self.place)
        if repeat:
            self.repeat(repeat)
        elif char == "(":
            self.open()
        elif char == ")":
            self.close()
        elif char == "[":
            self.atom(self.bracket())
        elif char == "\\":
            self.place += 1
            self.escape()
        else:
            self.place += 1
            self.plain(char)

    def plain(self, char: str) -> None:
        """A character that stands for itself, or one of `.^$|`."""
        if char == "|":
            self.out.append("|")
            self.repeatable = False
        elif char == ".":
            self.atom(f"[^{_INVALID}]" if self.flags.s else f"[^\n{_INVALID}]")
        elif char == "^":
            self.atom("(?m:^)" if self.flags.m else r"\A")
        elif char == "$":
            self.atom(r"(?=\n|\Z)" if self.flags.m else r"\Z")
        else:
            self.atom(re.escape(char))

    def atom(self, text: str) -> None:
        """What can be repeated."""
        self.out.append(f"(?i:{text})" if self.flags.i else text)
        self.repeatable = True

    def repeat(self, found: re.Match[str]) -> None:
        """A repetition; lazy and greedy change places under the flag `U`."""
        if not self.repeatable:
            raise _MalformedPattern(f"no argument for repetition operator: {found[0]}")
        if any(int(count or 0) > _MOST_REPEATS for count in (found[1], found[3])):
            raise _MalformedPattern(f"invalid repetition size: {found[0]}")
        self.place = found.end()
        lazy = self.text[self.place : self.place + 1] == "?"
        self.place += lazy
        again = _REPEAT.match(self.text, self.place)
        if again:
            raise _MalformedPattern(f"bad repetition operator: {found[0]}{again[0]}")
        self.out.append(found[0] + ("?" if lazy != self.flags.U else ""))
        self.repeatable = False

    def open(self) -> None:
        """A group, or flags for the rest of the one that this is in."""
        if not self.text.startswith("(?", self.place):
            self.place += 1
            self.group("(")
            return
        found = _GROUP.match(self.text, self.place)
        if not found or (found["end"] == ")" and not found["on"] and not found["off"]):
            raise _MalformedPattern(
                f"invalid perl operator: {self.text[self.place : self.place + 3]}"
            )
        self.place = found.end()
        if found["name"]:
            self.group(found[0])
            return
        flags = self.flags.changed(found["on"], found["off"] or "")
        if found["end"] == ":":
            self.group("(?:")
        self.flags = flags

    def group(self, text: str) -> None:
        """Begin a group; its end restores the flags."""
        self.groups.append(self.flags)
        self.out.append(text)
        self.repeatable = False

    def close(self) -> None:
        """End a group."""
        if not self.groups:
            raise _MalformedPattern(f"unexpected ): {self.text}")
        self.flags = self.groups.pop()
        self.place += 1
        self.out.append(")")
        self.repeatable = True

    def escape(self) -> None:
        """What follows a backslash outside of brackets."""
        char = self.text[self.place : self.place + 1]
        if char in ("b", "B", "A", "z") and char:
            self.place += 1
            self.atom({"b": r"(?a:\b)", "B": r"(?a:\B)", "A": r"\A", "z": r"\Z"}[char])
        elif char == "Q":
            end = self.text.find("\\E", self.place)
            literal = self.text[self.place + 1 : end if end >= 0 else len(self.text)]
            self.place = end + 2 if end >= 0 else len(self.text)
            for each in literal:
                self.atom(re.escape(each))
        else:
            members, single = self.member()
            self.atom(members if single else f"[{members}]")

    def member(self) -> tuple[str, bool]:
        """What follows a backslash, as members of a class, and whether it is one character."""
        char = self.text[self.place : self.place + 1]
        if not char:
            raise _MalformedPattern("trailing \\")
        if char.lower() in _PERL:
            self.place += 1
            return (_PERL if char.islower() else _NOT_PERL)[char.lower()], False
        if char in "pP":
            return self.property(), False
        number = _NUMBER.match(self.text, self.place)
        if number:
            self.place = number.end()
            code = int(number[3], 8) if number[3] else int(number[1] or number[2], 16)
            if code > sys.maxunicode:
                raise _MalformedPattern(f"invalid escape sequence: \\{number[0]}")
            return re.escape(chr(code)), True
        if char in _CONTROL or char in string.punctuation:
            self.place += 1
            return re.escape(_CONTROL.get(char, char)), True
        raise _MalformedPattern(f"invalid escape sequence: \\{char}")

    def property(self) -> str:
        """A general category of Unicode, as members of a class."""
        found = _PROPERTY.match(self.text, self.place)
        name = (found[2] or found[4]) if found else ""
        if not found or len(name) > 2:
            raise _MalformedPattern(f"invalid character class range: \\{self.text[self.place :]}")
        self.place = found.end()
        negated = (found[1] == "P") != bool(found[3])
        return _category(name, negated)

    def bracket(self) -> str:
        """A class in brackets."""
        start = self.place
        self.place += 1
        negated = self.text.startswith("^", self.place)
        self.place += negated
        parts: list[str] = []
        while self.place < len(self.text) and (self.text[self.place] != "]" or not parts):
            parts.append(self.part())
        if self.place >= len(self.text):
            raise _MalformedPattern(f"missing ]: {self.text[start:]}")
        self.place += 1
        return f"[^{_INVALID}{''.join(parts)}]" if negated else f"[{''.join(parts)}]"

    def part(self) -> str:
        """One member of a class in brackets."""
        char = self.text[self.place]
        if self.text.startswith("[:", self.place) and ":]" in self.text[self.place :]:
            return self.posix()
        self.place += 1
        if char == "\\":
            return self.member()[0]
        # a hyphen between two members makes a range, all else stands for itself
        ends = self.text[self.place - 2] in "[^" or self.text[self.place : self.place + 1] == "]"
        return "-" if char == "-" and not ends else re.escape(char)

    def posix(self) -> str:
        """A named class inside of brackets."""
        end = self.text.index(":]", self.place)
        name = self.text[self.place + 2 : end]
        members = _POSIX.get(name.removeprefix("^"))
        if members is None:
            raise _MalformedPattern(f"invalid character class range: [:{name}:]")
        self.place = end + 2
        return _complement(members) if name.startswith("^") else members


def _complement(members: str) -> str:
    matcher = re.compile(f"[{members}]")
    return _ranges([not matcher.match(chr(code)) for code in range(128)] + [True], _TOP)


def _ranges(flags: list[bool], last: str) -> str:
    """The members of a class from a table of codes; its last entry holds up to `last`."""
    parts, code = [], 0
    while code < len(flags):
        stop = code
        while stop < len(flags) and flags[stop] == flags[code]:
            stop += 1
        if flags[code]:
            parts.append((code, ord(last) if stop == len(flags) else stop - 1))
        code = stop
    # never the surrogates: they stand for bytes that are no text
    texts = []
    for low, high in parts:
        for a, b in ((low, min(high, 0xD7FF)), (max(low, 0xE000), high)):
            if a <= b:
                texts.append(f"{re.escape(chr(a))}-{re.escape(chr(b))}")
    return "".join(texts)


@cache
def _category(name: str, negated: bool) -> str:
    """The characters whose general category begins with a name, or all others."""
    codes = range(sys.maxunicode + 1)
    flags = [unicodedata.category(chr(c)).startswith(name) != negated for c in codes]
    if not negated and True not in flags:
        raise _MalformedPattern(f"invalid character class range: \\p{{{name}}}")
    return _ranges(flags, _TOP)
