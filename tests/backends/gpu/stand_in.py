"""A stand-in for CuPy over NumPy: the same line between host and card, and the same names.

Its arrays are of a class of their own, which no NumPy array mixes with and which is never converted
in passing; what CuPy has not is missing here (`cupy.json`), and its ufuncs refuse the same types.
Where CuPy gives other values than NumPy, so do they (`unlike`). Kernels run at once; copies only
when an event behind them is waited for, so that a read too early finds rubbish.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.backends.gpu import cuda, cupy_differences
from tests.backends.gpu.surface import MODULES, recorded
from tests.backends.gpu.ufunc_loops import dtypes, in_loop

NAMES = recorded()
_HELD = frozenset([*map(np.dtype, "?bhilqBHILQefdFD"), cupy_differences.BFLOAT16])
# these copy NumPy arrays to the GPU; others take them for a shape or an index
_BRINGS = {"array", "asarray", "ascontiguousarray"}
_COPIES = {*_BRINGS, "empty"}
_SHAPES = {"zeros", "ones", "empty", "full", "reshape", "broadcast_to", "tile", "transpose"}
# used by CuPy where NumPy would have to be called
_ALWAYS = {"take": {"mode": "wrap"}, "sort": {"kind": "stable"}, "argsort": {"kind": "stable"}}
# in-place updates, and the dtypes that have instructions on a GPU
_SCATTERS = {
    "add": "iIlLqQefd",
    "subtract": "iI",
    "maximum": "iIlLqQfd",
    "minimum": "iIlLqQfd",
}
_SORTS = {"sort", "argsort", "partition", "argpartition"}
# methods that need values on the host
_WAITING = {"item", "tolist", "tobytes", "nonzero"}
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift")
_BINARY += ("rshift", "matmul")


class Faults:
    """Array operations that fail, as those do that CuPy lacks: the one at a place in their order.

    What copies arrays between host and card does not count.
    """

    place = -1
    count = 0

    @classmethod
    @contextmanager
    def at(cls, place: int) -> Iterator[None]:
        """Let the operation at a place fail, once."""
        cls.place, cls.count = place, 0
        try:
            yield
        finally:
            cls.place = -1

    @classmethod
    def strike(cls) -> None:
        """Count an operation, and raise CuPy's error at the place."""
        cls.count += 1
        if cls.count - 1 == cls.place:
            message = "this operation is not supported yet"
            raise NotImplementedError(message)


class Array:
    """An array on the GPU; `waits` counts the synchronizations for its value."""

    waits = 0
    # alignment of memory from a pool
    _start = 512
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None) -> None:
        if memptr is None:
            self._a = cuda.rubbish(shape, require(np.dtype(dtype)))
        else:
            self._a, self._start = memptr.array.reshape(shape), int(memptr.memory.ptr)
        self._memory = memptr
        self.base: Array | None = None

    @classmethod
    def over(cls, array: Any, base: Array | None = None) -> Array:
        made = cls.__new__(cls)
        made._a = np.asarray(array)
        made._memory = None if base is None else base._memory
        made._start = cls._start if base is None else base._start
        made.base = base if base is None or base.base is None else base.base
        require(made._a.dtype)
        return made

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape}

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        message = "Implicit conversion to a NumPy array is not allowed."
        raise TypeError(message)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        found = getattr(library, ufunc.__name__, None)
        if method != "__call__":
            found = getattr(found, method, None)
        if found is None or any(isinstance(item, tuple | list) for item in inputs):
            return NotImplemented
        return found(*inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        module: Any = library
        try:
            for part in func.__module__.split(".")[1:]:
                module = getattr(module, part)
            found = getattr(module, func.__name__)
        except AttributeError:
            return NotImplemented
        return found(*args, **kwargs)

    def get(
        self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> Any:
        stream = stream or cuda.Stream.now
        out = np.empty(self.shape, self.dtype) if out is None else out
        if out.dtype != self.dtype or out.shape != self.shape:
            message = "out does not fit"
            raise ValueError(message)
        stream.queue(lambda: np.copyto(out, self._a))
        if blocking:
            Array.waits += 1
            stream.synchronize()
        return out

    def set(self, array: Any, stream: Any = None) -> None:
        assert array.shape == self.shape
        assert array.dtype == self.dtype
        (stream or cuda.Stream.now).queue(lambda: np.copyto(self._a, array))

    @property
    def data(self) -> Any:
        root = self if self.base is None else self.base
        offset = self._a.ctypes.data - root._a.ctypes.data
        return SimpleNamespace(ptr=cuda.Pointer(self._start + offset, self._a), device_id=0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in NAMES["ndarray"]:
            message = f"'ndarray' object has no attribute {name!r}"
            raise AttributeError(message)
        found = getattr(self._a, name)
        if not callable(found):
            return wrap(found, self) if isinstance(found, np.ndarray) else found
        return lambda *args, **kwargs: self._called(name, found, args, kwargs)

    def _called(self, name: str, found: Any, args: Any, kwargs: Any) -> Any:
        Array.waits += name in _WAITING
        if name in ("item", "tolist", "tobytes"):
            return found(*args, **kwargs)
        args, kwargs = plain(args, name), {key: plain(item, name) for key, item in kwargs.items()}
        kwargs |= _ALWAYS.get(name, {})
        if name == "astype":
            return wrap(cupy_differences.converted(self._a, require(np.dtype(args[0]))), self)
        return wrap(found(*args, **kwargs), self)

    def scatter_add(self, index: Any, value: Any) -> None:
        self._deprecated("add")
        library.add.at(self, index, value)

    def scatter_max(self, index: Any, value: Any) -> None:
        self._deprecated("max")
        library.maximum.at(self, index, value)

    def scatter_min(self, index: Any, value: Any) -> None:
        self._deprecated("min")
        library.minimum.at(self, index, value)

    def _deprecated(self, how: str) -> None:
        """Warn with the location of the caller, as compiled code does."""
        message = f"`ndarray.scatter_{how}` is deprecated."
        warnings.warn(message, DeprecationWarning, stacklevel=3)

    def __getitem__(self, index: Any) -> Any:
        return wrap(self._a[_index(index, self.shape)], self)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._a[_index(index, self.shape)] = cupy_differences.filling(plain(value, "setitem"))

    def __len__(self) -> int:
        return len(self._a)

    def __iter__(self) -> Any:
        if not self.ndim:
            message = "iteration over a 0-d array"
            raise TypeError(message)
        return (self[place] for place in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __repr__(self) -> str:
        return repr(self._a)

    def __str__(self) -> str:
        return str(self._a)

    def __format__(self, spec: str) -> str:
        return format(self._a if self.ndim else self._a[()], spec)


def require(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Raise CuPy's error for a dtype that it does not compute with."""
    if dtype not in _HELD:
        message = f"Unsupported dtype {dtype}"
        raise ValueError(message)
    return dtype


def plain(value: Any, name: str = "") -> Any:
    """An argument for NumPy. Raises TypeError for a NumPy array, which is not on the GPU."""
    if isinstance(value, Array):
        return value._a
    if isinstance(value, np.ndarray) and name not in _BRINGS | _SHAPES | {"take"}:
        message = f"Unsupported type {type(value)}"
        raise TypeError(message)
    if isinstance(value, list | tuple):
        return type(value)(plain(item, name) for item in value)
    return value


def wrap(value: Any, base: Array | None = None) -> Any:
    """A NumPy result as a GPU array; scalars become arrays of rank 0."""
    if isinstance(value, np.ndarray | np.generic):
        shares = base is not None and np.may_share_memory(value, base._a)
        return Array.over(value, base if shares else None)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(wrap, value))
    return (
        type(value)(wrap(item, base) for item in value)
        if isinstance(value, list | tuple)
        else value
    )


def _index(index: Any, shape: tuple[int, ...]) -> Any:
    """An index for NumPy: integer arrays wrap around, as on a GPU."""
    parts = index if isinstance(index, tuple) else (index,)
    made = list[Any]()
    place = 0
    taken = sum(1 for part in parts if part is not None and part is not Ellipsis)
    for part in parts:
        if isinstance(part, Array | list | np.ndarray):
            array = np.asarray(plain(part, "take"))
            if array.dtype.kind in "iu" and place < len(shape) and shape[place]:
                array = array % np.array(shape[place], array.dtype)
            made.append(array)
            place += array.ndim if array.dtype.kind == "b" else 1
            continue
        made.append(part)
        place += len(shape) - taken if part is Ellipsis else 0 if part is None else 1
    return tuple(made)


def _function(module: str, name: str, recorded_facts: Any) -> Callable[..., Any]:
    """A GPU function that computes like NumPy's."""
    ours = cupy_differences.FUNCTIONS.get(name) or getattr(import_module(MODULES[module][1]), name)

    @functools.wraps(ours)
    def call(*args: Any, **kwargs: Any) -> Any:
        if name not in _COPIES:
            Faults.strike()
        _check(name, recorded_facts, args, kwargs)
        kwargs |= _ALWAYS.get(name, {})
        first = next((item for item in args if isinstance(item, Array)), None)
        args = tuple(plain(item, name) for item in args)
        if name in cupy_differences.FILL:
            args = tuple(map(cupy_differences.filling, args))
        if any(getattr(item, "dtype", None) == cupy_differences.BFLOAT16 for item in args):
            if name in _SORTS:
                message = "Sorting arrays with dtype 'bfloat16' is not supported"
                raise NotImplementedError(message)
            if "types" in recorded_facts:
                return wrap(in_loop(name, ours, recorded_facts["types"], args), first)
        result = ours(*args, **{key: plain(item, name) for key, item in kwargs.items()})
        return wrap(result, first)

    return call


def _check(name: str, recorded_facts: Any, args: Any, kwargs: Any) -> None:
    """Raise if CuPy does not have such a parameter or such dtypes."""
    if "parameters" in recorded_facts:
        unknown = (
            []
            if recorded_facts["open"]
            else sorted(set(kwargs) - set(recorded_facts["parameters"]))
        )
        if unknown or (
            len(args) > len(recorded_facts["parameters"]) and not recorded_facts["many"]
        ):
            message = f"{name}() got an unexpected argument {unknown}"
            raise TypeError(message)
        return
    unknown = sorted(set(kwargs) - {"out", "dtype", "casting"})
    if unknown:
        message = f"Wrong arguments {unknown}"
        raise TypeError(message)
    inputs = args[: len(recorded_facts["types"][0].partition("->")[0])]
    for item in inputs:
        if not isinstance(item, Array | int | float | complex | np.generic):
            message = f"Unsupported type {type(item)}"
            raise TypeError(message)
    types = [item.dtype for item in inputs if isinstance(item, Array)]
    if not any(_takes(loop, types, inputs) for loop in recorded_facts["types"]):
        message = f"Wrong type ({types}) of arguments for cupy_{name}"
        raise TypeError(message)


def _takes(loop: str, types: Any, inputs: Any) -> bool:
    wants = dtypes(loop.partition("->")[0])
    return all(
        not isinstance(item, Array) or np.can_cast(item.dtype, want)
        for item, want in zip(inputs, wants, strict=True)
    )


class _Ufunc:
    """A GPU ufunc: callable, with few of NumPy's methods."""

    def __init__(self, module: str, name: str, recorded_facts: Any) -> None:
        self._call, self.__name__ = _function(module, name, recorded_facts), name
        self.types = recorded_facts["types"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def at(self, array: Array, index: Any, value: Any) -> None:
        Faults.strike()
        if self.__name__ not in _SCATTERS:
            message = f"`cupy_{self.__name__}.at` is not supported yet"
            raise NotImplementedError(message)
        if array.dtype.char not in _SCATTERS[self.__name__]:
            message = f"cupy.{self.__name__}.at only supports int32, and some more, as data type"
            raise TypeError(message)
        values = plain(value, "at")
        getattr(np, self.__name__).at(array._a, _index(index, array.shape), values)


def _module(module: str) -> Any:
    made = SimpleNamespace()
    source = import_module(MODULES[module][1])
    for name, recorded_facts in NAMES[module].items():
        found = getattr(source, name, None)
        if found is None:  # CuPy keeps names that NumPy has dropped, such as row_stack
            continue
        if recorded_facts is not None:
            found = (
                _Ufunc(module, name, recorded_facts)
                if "types" in recorded_facts
                else _function(module, name, recorded_facts)
            )
        elif callable(found) and not isinstance(found, type):
            found = _function(module, name, {"parameters": [], "open": True, "many": True})
        setattr(made, name, found)
    return made


def _operators() -> None:
    """Define the operators of the class as calls of ufuncs."""
    for text in _BINARY:
        name = f"__{text}__"
        setattr(Array, name, _operator(getattr(operator, name)))
        setattr(Array, f"__r{text}__", _operator(getattr(operator, name), swapped=True))
        setattr(Array, f"__i{text}__", _in_place(getattr(operator, f"__i{text}__")))
    for text in ["eq", "ne", "lt", "le", "gt", "ge"]:
        setattr(Array, f"__{text}__", _operator(getattr(operator, text)))
    for text in ["neg", "pos", "abs", "invert"]:
        call = getattr(operator, text)
        setattr(Array, f"__{text}__", lambda self, call=call: wrap(call(self._a)))


def _operator(call: Any, *, swapped: bool = False) -> Any:
    if call is operator.mod:
        call = cupy_differences.FUNCTIONS["mod"]

    def run(self: Array, other: Any) -> Any:
        Faults.strike()
        if not isinstance(other, Array | int | float | complex | np.generic):
            message = f"Unsupported type {type(other)}"
            raise TypeError(message)
        mine, theirs = self._a, plain(other)
        return wrap(call(theirs, mine) if swapped else call(mine, theirs))

    return run


def _in_place(call: Any) -> Any:
    def run(self: Array, other: Any) -> Any:
        Faults.strike()
        self._a = call(self._a, plain(other))
        return self

    return run


def _fuse(kernel_name: str | None = None) -> Any:
    def fused(function: Any) -> Any:
        # it becomes a name in CUDA, and a lambda has none
        assert (kernel_name or function.__name__).isidentifier()
        return function

    return fused


def _library() -> Any:
    made = _module("")
    for module in filter(None, MODULES):
        setattr(made, module, _module(module))
    made.ndarray, made.cuda = Array, cuda
    made.asnumpy = lambda value: value.get() if isinstance(value, Array) else np.asarray(value)
    made.fuse = _fuse
    made.__name__ = "cupy"
    return made


_operators()
library = _library()
