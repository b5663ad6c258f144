"""Compiled kernels on disk: found by what they were compiled from, and never in the way."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cfgraph.runtime.fused import cuda, kernel_cache
from tests.runtime.card.stand_in import library

SOURCE = "extern kernel"


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that were compiled; kernels are kept in a folder of the test."""
    seen: list[str] = []

    def compile_using_nvrtc(source: str, options: Any) -> tuple[bytes, None]:
        seen.append(source)
        return source.encode(), None

    class Module:
        def load(self, code: bytes) -> None:
            if code == b"old":
                message = "CUDA_ERROR_NO_BINARY_FOR_GPU"
                raise RuntimeError(message)
            self.code = code

    compiler = SimpleNamespace(compile_using_nvrtc=compile_using_nvrtc)
    monkeypatch.setattr(library.cuda, "compiler", compiler, raising=False)
    monkeypatch.setattr(library.cuda, "Module", Module, raising=False)
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.delenv("CUPY_CACHE_IN_MEMORY", raising=False)
    return seen


def code() -> Any:
    return cuda.module_of(library, SOURCE).code


def test_a_source_is_compiled_once_for_all_processes(compiled: list[str], tmp_path: Path) -> None:
    assert [code(), code()] == [SOURCE.encode()] * 2
    assert compiled == [SOURCE]
    (kept,) = (tmp_path / "kernels").iterdir()
    assert kept.name.startswith("cfgraph-")


@pytest.mark.parametrize("other", ["card", "compiler", "options"])
def test_for_another_card_or_compiler_it_is_compiled_anew(
    other: str, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code()
    if other == "card":
        monkeypatch.setattr(library.cuda.Device, "compute_capability", "100")
    elif other == "compiler":
        monkeypatch.setattr(library.cuda.nvrtc, "getVersion", lambda: (13, 1))
    else:
        monkeypatch.setattr(cuda, "OPTIONS", ("--fmad=true",))
    assert code() == SOURCE.encode()
    assert len(compiled) == 2


@pytest.mark.parametrize("kept", [b"", b"short", bytes(32) + b"other code"])
def test_a_file_that_is_not_whole_is_written_anew(
    kept: bytes, compiled: list[str], tmp_path: Path
) -> None:
    code()
    (file,) = (tmp_path / "kernels").iterdir()
    file.write_bytes(kept)
    assert [code(), code()] == [SOURCE.encode()] * 2
    assert len(compiled) == 2


def test_what_the_driver_does_not_take_is_compiled_anew(compiled: list[str]) -> None:
    name = kernel_cache.name_of(library, SOURCE, cuda.OPTIONS)
    kernel_cache.save(name, b"old")
    assert code() == SOURCE.encode()
    assert kernel_cache.load(name) == SOURCE.encode()


def test_kernels_are_compiled_where_nothing_can_be_kept(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    assert code() == code() == SOURCE.encode()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    assert code() == SOURCE.encode()
    assert len(compiled) == 3
    assert not (tmp_path / "kernels").exists()


def test_without_a_home_nothing_is_kept_and_kernels_are_compiled(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUPY_CACHE_DIR", "~nobody-has-this-name/kernels")
    assert [code(), code()] == [SOURCE.encode()] * 2
    assert compiled == [SOURCE] * 2
