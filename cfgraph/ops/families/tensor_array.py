"""State of a TensorArray: one write and one read per index; gradient arrays sum their writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index as as_index
from types import ModuleType
from typing import Any, Final, NoReturn

from cfgraph.ir.dtypes import DType
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from cfgraph.limits import reserve
from cfgraph.ops.kernels.variant_math import add_values, zeros_of_dtype
from cfgraph.ops.opdef.op import OpError
from cfgraph.ops.opdef.resources import Resource

# State flags of an element. With _SHAPE_ONLY, `_values` contains a shape instead of an array.
_WRITTEN: Final = 1
_READ: Final = 2
_SHAPE_ONLY: Final = 4
_SHARED: Final = (
    "gradients in a loop share one gradient array if the array is created outside of it (`check` "
    "says so: CFG229); create it inside, or use a tensor list"
)


class TensorArray(Resource):
    """Array of tensors of one dtype; the value of a TensorArray handle."""

    __slots__ = (
        "_exact",
        "_flags",
        "_gradients",
        "_values",
        "_xp",
        "clear_after_read",
        "closed",
        "dtype",
        "dynamic",
        "element_shape",
        "identical",
        "is_gradient",
        "name",
        "parts",
        "rows",
    )
    shape = ()

    def __init__(
        self,
        xp: ModuleType,
        dtype: DType,
        size: int,
        *,
        element_shape: Shape = UNKNOWN_SHAPE,
        dynamic: bool = False,
        clear_after_read: bool = True,
        identical: bool = False,
        is_gradient: bool = False,
        name: str = "",
    ) -> None:
        if size < 0:
            raise OpError(f"Size should be >= 0, not {size}.")
        reserve(16 * size, "the array")
        self.dtype = dtype
        self.dynamic = dynamic
        self.clear_after_read = clear_after_read
        self.identical = identical
        self.is_gradient = is_gradient
        self.name = name
        self.closed = False
        self.parts: int | None = None
        self._xp = xp
        self._values: list[Any] = [None] * size
        self._flags = [0] * size
        self._gradients: dict[str, TensorArray] = {}
        self._pin(element_shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        if self.closed:
            self._fail("has already been closed.")
        return len(self._values)

    def place(self, xp: ModuleType, move: Callable[[Any], Any]) -> None:
        """Move all elements to an array namespace, unless they are there."""
        if self._xp is not xp:
            self._xp = xp
            self._values = [
                x if x is None or isinstance(x, tuple) else move(x) for x in self._values
            ]

    @property
    def packed_size(self) -> int:
        """The number of elements that pack and concat combine.

        In a gradient array this is the number of pieces that one tensor was unpacked into; elements
        written after them receive their gradients separately.
        """
        size = self.size
        return size if self.parts is None or not self.is_gradient else self.parts

    def put(self, index: Any, value: Any, dtype: DType) -> None:
        """Write an element; a gradient array adds to it."""
        index = as_index(index)
        size = len(self._values)
        if not 0 <= index < size:
            self._grow(index)
        if dtype is not self.dtype:
            self._refuse(
                index, f"the value dtype is {dtype} but TensorArray dtype is {self.dtype}."
            )
        if value.shape != self._exact:
            self._fit(index, value)
        if self._flags[index]:
            value = self._combine_writes(index, value)
        self._values[index] = value
        self._flags[index] = _WRITTEN

    def get(self, index: Any, dtype: DType) -> Any:
        """Read an element, and clear it if `clear_after_read` is set."""
        index = as_index(index)
        if not 0 <= index < len(self._values):
            self._fail(f"Tried to read from index {index} but array size is: {self.size}")
        if dtype is not self.dtype:
            self._fail(f"TensorArray dtype is {self.dtype} but Op requested dtype {dtype}.")
        flags = self._flags[index]
        value = self._values[index] if flags == _WRITTEN else self._read_special(index, flags)
        if self.clear_after_read:
            self._values[index] = value.shape
            self._flags[index] = _WRITTEN | _READ | _SHAPE_ONLY
        else:
            self._values[index] = value
            self._flags[index] = _WRITTEN | _READ
        return value

    def get_many(self, indices: Iterable[Any], dtype: DType) -> list[Any]:
        """Read several elements."""
        return [self.get(index, dtype) for index in indices]

    def put_many(self, indices: Sequence[Any], values: Sequence[Any], dtype: DType) -> None:
        """Write several elements, in reverse order."""
        for index, value in zip(reversed(indices), reversed(values), strict=True):
            self.put(index, value, dtype)

    def mark(self, parts: int) -> None:
        """Record the number of pieces of one unpacked tensor; ignored by gradient arrays."""
        if not self.is_gradient:
            self.parts = parts

    def grow_to(self, size: int) -> None:
        """Extend the array to at least `size` elements."""
        missing = size - len(self._values)
        if missing > 0:
            reserve(16 * size, "the array")
            self._values += [None] * missing
            self._flags += [0] * missing

    def gradient(self, source: str, prepend: Sequence[int] = ()) -> TensorArray:
        """The gradient array for a gradient source, created on first use; fixes this array's size.

        The gradient array of a gradient array, which TensorFlow does not support, serves
        higher-order gradients: it is read as often as the gradient array is written, and keeps its
        elements.
        """
        size = self.size
        existing = self._gradients.get(source)
        if existing is not None:
            return existing
        self.dynamic = False
        made = TensorArray(
            self._xp,
            self.dtype,
            size,
            element_shape=Shape(prepend) + self.element_shape,
            clear_after_read=not self.is_gradient,
            identical=self.identical,
            is_gradient=True,
            name=f"{self.name}@{source}",
        )
        made.parts = self.parts
        made._copy_shapes(self, tuple(prepend))
        self._gradients[source] = made
        return made

    def narrow(self, shape: Shape) -> None:
        """Refine the element shape with a shape known to a reader.

        Raises OpError for incompatible shapes.
        """
        try:
            self._pin(self.element_shape.merge(shape))
        except ValueError as error:
            self._fail(str(error))

    def stored_values(self) -> list[Any]:
        """The elements whose values are stored."""
        pairs = zip(self._values, self._flags, strict=True)
        return [value for value, flags in pairs if flags and not flags & _SHAPE_ONLY]

    def close(self) -> None:
        """Free the content; later operations raise OpError."""
        self.closed = True
        self._values = []
        self._flags = []

    def _pin(self, shape: Shape) -> None:
        self.element_shape = shape
        self._exact: Any = shape.dims if shape.is_full else None

    def _copy_shapes(self, forward: TensorArray, prepend: tuple[int, ...]) -> None:
        """Copy the shapes of the written elements, so that reads of them return zeros."""
        for index, flags in enumerate(forward._flags):
            if flags & _WRITTEN:
                value = forward._values[index]
                self._values[index] = prepend + (value if flags & _SHAPE_ONLY else value.shape)
                self._flags[index] = _WRITTEN | _SHAPE_ONLY

    def _grow(self, index: int) -> None:
        size = self.size
        if index < 0 or not self.dynamic:
            self._fail(
                f"Tried to write to index {index} but array is not resizeable and size is: {size}"
            )
        self.grow_to(index + 1)

    def _fit(self, index: int, value: Any) -> None:
        if not self.element_shape.accepts(value.shape):
            self._refuse(
                index,
                f"the value shape is {Shape(value.shape)} which is incompatible with the "
                f"TensorArray's inferred element shape: {self.element_shape} "
                f"(consider setting infer_shape=False).",
            )
        if self.identical:
            self._pin(Shape(value.shape))

    def _combine_writes(self, index: int, value: Any) -> Any:
        """Value after a repeated write: the sum in a gradient array. Otherwise raises OpError."""
        flags = self._flags[index]
        if flags & _READ:
            self._refuse(index, "it has already been read.", _SHARED if self.is_gradient else "")
        if not self.is_gradient:
            self._refuse(index, "it has already been written to.")
        previous = self._values[index]
        shape = previous if flags & _SHAPE_ONLY else previous.shape
        if shape != value.shape:
            message = (
                f"Could not aggregate to TensorArray index {index} because the existing shape is "
                f"{Shape(shape)} but the new input shape is {Shape(value.shape)}."
            )
            self._fail(message)
        return value if flags & _SHAPE_ONLY else add_values(previous, value)

    def _read_special(self, index: int, flags: int) -> Any:
        """Value of an element in a special state: already read, shape only, or never written."""
        value = self._values[index]
        if flags & _READ and not flags & _SHAPE_ONLY:
            return value
        if flags & _READ:
            self._fail(
                f"Could not read index {index} twice because it was cleared after a previous read "
                f"(perhaps try setting clear_after_read = false?)."
            )
        shape = value if flags & _SHAPE_ONLY else self._exact
        if shape is None:
            self._fail(
                f"Could not read from TensorArray index {index}.  Furthermore, the element shape "
                f"is not fully defined: {self.element_shape}.  It has not been written to."
            )
        if self.dtype.is_object:
            self._fail(f"Could not read index {index}: dtype {self.dtype} has no zero.")
        return zeros_of_dtype(self._xp, self.dtype, shape)

    def _refuse(self, index: int, why: str, hint: str = "") -> NoReturn:
        self._fail(f"Could not write to TensorArray index {index} because {why}", hint)

    def _fail(self, detail: str, hint: str = "") -> NoReturn:
        raise OpError(f"TensorArray {self.name}: {detail}", hint=hint or None)

    def __repr__(self) -> str:
        return f"<TensorArray {self.name!r} of {len(self._values)} {self.dtype}>"
