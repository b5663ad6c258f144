"""What a kernel does to one element, found by running the kernel: on values that stand for arrays.

The kernels of ops take their namespace, so a namespace that writes C down in place of computing
makes of each the expression that it is; nothing about an op is said a second time. Types are
NumPy's, asked of NumPy itself; each operation rounds as NumPy's does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np

from cfgraph.errors import Unsupported
from cfgraph.runtime.fused.c_types import TYPES, CType, literal

Dims = tuple[int, ...]
_NAMES: Final = re.compile(r"\b[tx]\d\w*")
# the functions of the prelude that make integers of floats; narrow ones are cut off an int32
_WHOLE: Final = {"uint32": "cf_uint", "int64": "cf_long", "uint64": "cf_ulong"}


def refuse(what: str) -> NoReturn:
    """Raise Unsupported for what a generated kernel cannot do."""
    message = f"{what} is no part of a generated kernel"
    raise Unsupported(message)


def c_type(dtype: Any) -> CType:
    """The type in C. Raises Unsupported for one that generated kernels do not know."""
    found = TYPES.get(np.dtype(dtype))
    return found or refuse(f"{dtype}")


@dataclass(frozen=True, slots=True)
class Statement:
    """`type name = text;`, where `reads` are statements and inputs by name; `shape` broadcast."""

    name: str
    kind: CType
    shape: Dims
    text: str
    reads: tuple[str, ...]


@dataclass(slots=True)
class Recorder:
    """The statements of a group of nodes, each different one once.

    `views` are the inputs as they are read: which one, and in which shape.
    """

    statements: dict[str, Statement] = field(default_factory=dict)
    views: dict[str, tuple[int, Dims]] = field(default_factory=dict)
    _known: dict[tuple[str, str, Dims], str] = field(default_factory=dict)

    def input(self, place: int, dtype: Any, shape: Dims) -> Elements:
        """What stands for an input."""
        c_type(dtype)
        self.views[f"x{place}"] = place, shape
        return Elements(self, f"x{place}", np.dtype(dtype), shape)

    def record(self, dtype: Any, shape: Dims, text: str, reads: tuple[str, ...]) -> Elements:
        """The value of an expression."""
        kind = c_type(dtype)
        key = kind.name, text, shape
        name = self._known.get(key)
        if name is None:
            name = self._known[key] = f"t{len(self.statements)}"
            self.statements[name] = Statement(name, kind, shape, text, reads)
        return Elements(self, name, np.dtype(dtype), shape)

    def reshaped(self, name: str, shape: Dims, wanted: Dims) -> str:
        """A value of one shape in another one: made of inputs in that shape, and of numbers.

        Refuses one that is made of what was broadcast to its shape.
        """
        if name in self.views:
            place, own = self.views[name]
            if own != shape:
                return name if not own else refuse("another shape of what is broadcast")
            found = [view for view, what in self.views.items() if what == (place, wanted)]
            view = found[0] if found else f"x{place}v{len(self.views)}"
            self.views[view] = place, wanted
            return view
        made = self.statements[name]
        if made.shape != shape:
            return name if not made.shape else refuse("another shape of what is broadcast")
        names = {read: self.reshaped(read, shape, wanted) for read in made.reads}
        text = _NAMES.sub(lambda found: names.get(found[0], found[0]), made.text)
        key = made.kind.name, text, wanted
        if key not in self._known:
            self._known[key] = f"t{len(self.statements)}"
            self.statements[self._known[key]] = Statement(
                self._known[key], made.kind, wanted, text, tuple(names.values())
            )
        return self._known[key]

    def lifted(self, value: Any) -> Elements:
        """A known number as a value."""
        if not np.isscalar(value) and np.ndim(value):
            refuse("an array that is known")
        dtype = np.asarray(value).dtype
        return self.record(dtype, (), literal(value, c_type(dtype)), ())


class Elements:
    """An array of which one element is at hand: `name` in C, `dtype` and `shape` as NumPy's."""

    __array_ufunc__ = None  # NumPy's scalars leave operators to us
    __slots__ = ("dtype", "name", "recorder", "shape")

    def __init__(self, recorder: Recorder, name: str, dtype: np.dtype[Any], shape: Dims) -> None:
        self.recorder, self.name, self.dtype, self.shape = recorder, name, dtype, shape

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def real(self) -> Elements:
        """Itself: no complex numbers."""
        return self

    def conj(self) -> Elements:
        """Itself."""
        return self

    def astype(self, dtype: Any, copy: bool = True) -> Elements:
        """The values as another type."""
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        text = converted(self.name, c_type(self.dtype), c_type(wanted))
        return self.recorder.record(wanted, self.shape, text, (self.name,))

    def spread(self, shape: Dims) -> Elements:
        """The same number for each element of a shape."""
        return self.recorder.record(self.dtype, shape, self.name, (self.name,))

    def reshape(self, *shape: Any) -> Elements:
        """The elements in a shape with other dimensions of size 1; one dimension may be -1."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        rest = int(np.prod([size for size in given if size != -1], dtype=int))
        wanted = tuple(self.size // max(rest, 1) if size == -1 else int(size) for size in given)
        if int(np.prod(wanted, dtype=int)) != self.size:
            message = f"cannot reshape array of size {self.size} into shape {wanted}"
            raise ValueError(message)
        if [size for size in wanted if size != 1] != [size for size in self.shape if size != 1]:
            refuse("another order of elements")
        name = self.recorder.reshaped(self.name, self.shape, wanted)
        return Elements(self.recorder, name, self.dtype, wanted)

    def view(self, dtype: Any) -> Elements:
        """The bits of an integer as another one of that width."""
        have, want = c_type(self.dtype), c_type(dtype)
        if have.bits != want.bits or {have.kind, want.kind} - {"int", "uint"}:
            refuse(f"{self.dtype} seen as {np.dtype(dtype)}")
        return self.astype(dtype)

    def __bool__(self) -> bool:  # noqa: PLE0304  (it never returns)
        refuse("a choice by a value")

    def __iter__(self) -> NoReturn:
        refuse("one element after the other")

    def __getitem__(self, key: Any) -> Elements:
        return self if key == () else refuse("a part of an array")


def converted(name: str, have: CType, want: CType) -> str:
    """A value of one type as another one, in C."""
    if have is want:
        return name
    if want.kind == "bool":
        return f"{name} != 0"
    if want.half:
        if have.half or have.computed == "float" or have.bits < 16:
            narrow = name
        elif have.computed == "double" and want.half == "half":
            narrow = f"cf_odd({name})"
        else:
            narrow = f"(float){name}"
        return f"cf_{want.half}_rounded({narrow})"
    if have.kind == "float" and want.kind in ("int", "uint"):
        whole = _WHOLE.get(want.name, "cf_int")
        return f"({want.computed}){whole}({name})"
    return f"({want.computed}){name}"


@dataclass(frozen=True, slots=True)
class Primitive:
    """A function of a namespace: the NumPy function that says its types, and its C by kind.

    In the text `{0}`… are operands of one type, that of the result unless it `compares`; `{T}` is
    its C type, `{U}` the unsigned one that it wraps around in, `{s}` the suffix of C functions.
    """

    like: Callable[..., Any]
    floats: str = ""
    ints: str = ""
    bools: str = ""
    compares: bool = False
    choice: bool = False  # operand 0 is a condition

    def __call__(self, *operands: Any) -> Any:
        """The value of the function. Raises Unsupported for types that it is not written for."""
        mine = [item for item in operands if isinstance(item, Elements)]
        if not mine:
            return self.like(*operands)
        recorder = mine[0].recorder
        given = [item if isinstance(item, Elements) else known(item) for item in operands]
        dtype = self.like(*(_sample(item) for item in given)).dtype
        loop = dtype
        if self.compares:
            loop = np.result_type(*(_sample(item) for item in given))
        kind = c_type(loop)
        text = {"float": self.floats, "bool": self.bools}.get(kind.kind, self.ints)
        if not text:
            refuse(f"{self.like.__name__} of {loop}")
        shape = np.broadcast_shapes(*(getattr(item, "shape", ()) for item in given))
        names, reads = [], list[str]()
        for place, item in enumerate(given):
            wanted = np.dtype(bool) if self.choice and place == 0 else loop
            name = _operand(item, wanted)
            names.append(name)
            reads += [name] if isinstance(item, Elements) else []
        written = text.format(
            *names, T=kind.computed, U=kind.unsigned, s=kind.suffix, bits=kind.bits
        )
        if kind.half and not self.compares and not self.choice:
            written = f"cf_{kind.half}_rounded({written})"
        return recorder.record(dtype, shape, written, tuple(reads))


def known(value: Any) -> Any:
    """A number that is known: a Python one, whose type is weak, or NumPy's. Refuses arrays."""
    if isinstance(value, np.ndarray):
        return value[()] if value.ndim == 0 else refuse("an array that is known")
    return value if isinstance(value, bool | int | float | np.generic) else refuse(str(type(value)))


def _sample(item: Any) -> Any:
    return np.empty(0, item.dtype) if isinstance(item, Elements) else item


def _operand(item: Any, dtype: Any) -> str:
    return item.astype(dtype).name if isinstance(item, Elements) else literal(item, c_type(dtype))
