"""Errors of the Builder with the line of the user program that called it."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cfgraph.errors import CfgraphError, UsageError

# frames of these files are internal
_BUILD_FOLDER: Final = str(Path(__file__).parent)
_CONTEXTLIB_FILE: Final = contextlib.__file__


def check_callable(function: Any, arguments: Sequence[Any], what: str) -> None:
    """Raise UsageError, with the line of the user, if a function cannot be called with
    `arguments`.
    """
    if not callable(function):
        message = f"{what} must be callable, got {function!r}"
        raise misuse_error(message, hint="write `lambda: …`")
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:
        return  # some built-in functions have no signature
    except TypeError as error:
        count = f"{len(arguments)} argument{'s' * (len(arguments) != 1)}"
        message = f"{what} is called with {count}: {error}"
        raise misuse_error(message) from None


def user_line() -> str:
    """`file:line` of the innermost caller outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_BUILD_FOLDER) and file != _CONTEXTLIB_FILE:
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def misuse_error(message: str, *, hint: str | None = None) -> UsageError:
    """UsageError for an invalid call, with the line of the user."""
    return UsageError(message, hint=hint, path=user_line())


def with_user_line(error: CfgraphError) -> CfgraphError:
    """The same error, with the line of the user unless it has a path already."""
    if error.path is None:
        error.path = user_line()
    return error
