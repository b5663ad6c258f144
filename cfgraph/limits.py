"""Limits on work and memory that a file can ask for: deadline, iterations, nodes, and bytes.

    with limited(timeout=10, max_memory=1 << 30):
        cfgraph.lower(graph)

The limits are those of the context (a `ContextVar`), so that no function passes them on. Code that
a file can make long calls `check_deadline`, or reads `current_limits` once per loop; code that
allocates as much as a file says calls `reserve` first. Limits can be nested: a deadline inside
another one is never later than the outer one.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from cfgraph.errors import ExecutionError, RunTimeout, Unsupported, UsageError

P = ParamSpec("P")
T = TypeVar("T")

# nodes of a graph after functions are expanded
DEFAULT_MAX_NODES: Final = 2_000_000
_MAX_EXACT_COUNT: Final = 10**12
# seconds of one wait for a thread; many more overflow the clock of the system
_LONGEST_WAIT: Final = 1e6
# threads of `run_interruptibly` whose callers have given up
_abandoned: Final[list[threading.Thread]] = []
# a value may take this fraction of the machine's memory by default: 1/4
_MEMORY_DIVISOR: Final = 4
# of version 2 and of version 1
_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
# a machine that does not say how much memory it has
_UNKNOWN_MEMORY: Final = 16 << 30
_MAX_MEMORY: Final = 1 << 62


@cache
def machine_memory() -> int:
    """The bytes of memory of the machine, or of the container that the process runs in."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        memory = _UNKNOWN_MEMORY
    if memory <= 0:  # a system may answer -1
        memory = _UNKNOWN_MEMORY
    limits = (limit for path in _CGROUP_LIMITS if (limit := _cgroup_limit(path)))
    return min(memory, *limits, _MAX_MEMORY)


def _cgroup_limit(path: Path) -> int:
    """The limit in a file of a control group; 0 for none, or for contents of another form."""
    try:
        text = path.read_text(encoding="ascii").strip()
        return int(text) if text.isdecimal() else 0
    except (OSError, ValueError):
        return 0


def default_max_memory() -> int:
    """The default limit of bytes: a quarter of the machine's memory."""
    return machine_memory() // _MEMORY_DIVISOR


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a context.

    `deadline` is a time of `time.monotonic`, infinite without a timeout. `max_iterations` is the
    number of iterations that a loop may start after its first, None without a limit. `max_nodes` is
    the number of nodes that a graph may expand to, `max_bytes` the size of a value.
    """

    deadline: float = math.inf
    max_iterations: int | None = None
    max_nodes: int = DEFAULT_MAX_NODES
    max_bytes: int = field(default_factory=default_max_memory)

    @property
    def bounds_loops(self) -> bool:
        """True if loops are subject to a deadline or a maximum number of iterations."""
        return self.max_iterations is not None or self.deadline != math.inf

    def check_deadline(self) -> None:
        """Raise RunTimeout if the deadline has passed."""
        if self.deadline != math.inf and time.monotonic() > self.deadline:
            raise timeout_error()

    def check_iteration(self, count: int, loop: str) -> None:
        """Raise ExecutionError for one iteration too many, RunTimeout after the deadline.

        `count` is the number of times that the body of the loop has run.
        """
        if self.max_iterations is not None and count >= self.max_iterations:
            raise iteration_limit_error(loop, self.max_iterations)
        self.check_deadline()

    def check_nodes(self, count: int, function: str, node: object = None) -> None:
        """Raise Unsupported if a function expands to more nodes than a graph may have."""
        if count > self.max_nodes:
            message = f"function {function!r} expands to {_rounded(count)} nodes"
            hint = "raise the limit with --max-nodes, or with max_nodes in Python"
            raise Unsupported(
                f"{message}, the limit is {self.max_nodes}", node=node, hint=hint, code="CFG137"
            )

    def reserve(self, size: int, description: str = "a value") -> None:
        """Raise ExecutionError if a value of this many bytes may not be allocated."""
        if size > self.max_bytes:
            message = f"{description} needs {size} bytes, the limit is {self.max_bytes}"
            hint = "raise the limit with --max-memory, or with max_memory in Python"
            raise ExecutionError(message, hint=hint, code="CFG713")


_DEFAULT: Final = Limits()
_LIMITS: Final[ContextVar[Limits]] = ContextVar("cfgraph_limits", default=_DEFAULT)


def current_limits() -> Limits:
    """The limits of the context; loops read them once, before they start."""
    return _LIMITS.get()


def check_deadline() -> None:
    """Raise RunTimeout if the deadline of the context has passed; takes about 60 ns."""
    limits = _LIMITS.get()
    if limits.deadline != math.inf:
        limits.check_deadline()


def reserve(size: int, description: str = "a value") -> None:
    """Raise ExecutionError if the context does not permit a value of this many bytes.

    Called with a size that comes from a file, before the value is allocated.
    """
    _LIMITS.get().reserve(size, description)


def reserve_array(dims: Iterable[int], item_bytes: int, description: str = "a value") -> None:
    """Call `reserve` with the bytes of an array; `dims` are Python's integers, of any size."""
    _LIMITS.get().reserve(math.prod(dims) * item_bytes, description)


@contextmanager
def limited(
    *,
    timeout: float | None = None,
    max_iterations: int | None = None,
    max_nodes: int | None = None,
    max_memory: int | None = None,
) -> Iterator[Limits]:
    """Set the limits of the context inside the `with` block; None leaves a limit as it is.

    Args:
        timeout: seconds until RunTimeout is raised; an earlier outer deadline stays.
        max_iterations: iterations that a loop may start after its first.
        max_nodes: nodes of a graph after its functions are expanded.
        max_memory: bytes of a single value.

    Raises UsageError for a limit that is negative or not a number.
    """
    values = {
        "timeout": timeout,
        "max_iterations": max_iterations,
        "max_nodes": max_nodes,
        "max_memory": max_memory,
    }
    for name, value in values.items():
        if value is not None and not value >= 0:
            raise UsageError(f"{name} must be a number of at least 0, got {value}")
    limits = _LIMITS.get()
    if timeout is not None:
        limits = replace(limits, deadline=min(limits.deadline, time.monotonic() + timeout))
    if max_iterations is not None:
        limits = replace(limits, max_iterations=max_iterations)
    if max_nodes is not None:
        limits = replace(limits, max_nodes=max_nodes)
    if max_memory is not None:
        limits = replace(limits, max_bytes=max_memory)
    token = _LIMITS.set(limits)
    try:
        yield limits
    finally:
        _LIMITS.reset(token)


def _rounded(count: int) -> str:
    """A count in words: exact up to a million millions, else a power of two."""
    return str(count) if count < _MAX_EXACT_COUNT else f"more than 2^{count.bit_length() - 1}"


class DeadlinePassed(BaseException):
    """The end of a call by its deadline; no kernel catches it as an error of its own."""


def timeout_error(message: str = "the timeout has expired", frame: object = None) -> RunTimeout:
    """The error after the deadline."""
    hint = "raise the limit with --timeout, or with timeout in Python"
    return RunTimeout(message, frame=frame, hint=hint, code="CFG706")


def iteration_limit_error(loop: str, limit: int, frame: object = None) -> ExecutionError:
    """The error of a loop that starts more iterations than the limit."""
    message = f"the loop {loop!r} started more than {limit} iterations"
    hint = "check its condition, or raise the limit: --max-iterations, in Python max_iterations"
    error = ExecutionError(message, frame=frame, hint=hint, code="CFG704")
    error.exceeded_loop = loop
    return error


def memory_errors_reported(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that raises ExecutionError for a MemoryError."""

    @wraps(function)
    def reported(*args: P.args, **keywords: P.kwargs) -> T:
        try:
            return function(*args, **keywords)
        except MemoryError as error:
            raise out_of_memory_error(str(error)) from None

    return reported


def out_of_memory_error(reason: str = "") -> ExecutionError:
    """The error of a computation that needs more memory than the machine or the limit has."""
    message = f"out of memory: {reason}" if reason else "out of memory"
    hint = "the graph or a tensor in it is too large; a command has the limit --max-memory"
    return ExecutionError(message, hint=hint)


def run_interruptibly(work: Callable[[], T], abandon: Callable[[], object] | None = None) -> T:
    """The result of a library's work, in a thread with the context of this one, which waits for it.

    A handler of a signal runs in the main thread, between instructions of Python. While a compiler
    works there, none runs, and an exception that one raises inside of its callbacks may be lost or
    end the process. In its own thread the compiler continues after its caller has given up, and the
    interpreter waits for it at exit: the thread of a C++ library must not end within it. `abandon`
    is called then, to let it end soon.

    Raises the errors of `work`, RunTimeout at the deadline, and what a handler of a signal raises.
    """
    limits = current_limits()
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main and limits.deadline == math.inf:
        return work()
    context, done = copy_context(), threading.Event()
    results, errors = list[T](), list[BaseException]()

    def compute() -> None:
        try:
            results.append(context.run(work))
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=compute, name="compiler", daemon=False)
    try:
        thread.start()
        while not done.wait(_seconds_until(limits.deadline)):
            limits.check_deadline()
    except BaseException:
        _abandoned[:] = [*filter(threading.Thread.is_alive, _abandoned), thread]
        if abandon is not None:
            abandon()
        raise
    if errors:
        raise errors.pop()  # not kept by its own frame
    return results[0]


def abandoned_work_continues() -> bool:
    """True if work whose caller has given up is not done, so that the interpreter would wait."""
    return any(thread.is_alive() for thread in _abandoned)


def _seconds_until(deadline: float) -> float | None:
    if deadline == math.inf:
        return None
    return min(max(0.0, deadline - time.monotonic()) + 0.001, _LONGEST_WAIT)
