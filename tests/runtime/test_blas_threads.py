"""Threads of BLAS: limited around a run, restored after it, chosen by the size of products."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.blas_environment import start_with_one_thread
from cfgraph.errors import UsageError
from cfgraph.runtime import blas_threads
from cfgraph.runtime.blas_threads import leave_a_core, limited_threads
from tests.shell import run

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_DEFAULT_NUM_THREADS")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


class Library:
    """A BLAS library that records the numbers it is set to."""

    def __init__(self) -> None:
        self.threads, self.history = 7, list[int]()

    def get_num_threads(self) -> int:
        return self.threads

    def set_num_threads(self, count: int) -> None:
        self.threads = count
        self.history.append(count)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(blas_threads, "_blas_libraries", lambda with_scipy: [made])
    return made


def product(size: int | None = 4) -> cfgraph.Graph:
    b = cfgraph.Builder()
    x = b.Placeholder(name="x", dtype="float32", shape=[size, size])
    b.MatMul(x, x, name="y")
    return b.graph


def multiply(session: cfgraph.Session, size: int = 4) -> Any:
    return session.run(["y:0"], {"x:0": np.ones((size, size), np.float32)})


def test_a_run_sets_the_number_and_restores_it(library: Library) -> None:
    multiply(cfgraph.Session(product(), blas_threads=3))
    assert library.history == [3, 7]


def test_a_failed_run_restores_the_number(library: Library) -> None:
    b = cfgraph.Builder()
    x = b.Placeholder(name="x", dtype="float32")
    b.MatMul(x, x, name="y")
    with pytest.raises(cfgraph.errors.ExecutionError):
        cfgraph.Session(b.graph, blas_threads=3).run(["y:0"], {"x:0": np.ones((2, 3), np.float32)})
    assert library.threads == 7


def test_a_session_leaves_the_number_alone_by_default(library: Library) -> None:
    multiply(cfgraph.Session(product()))
    assert library.history == []


def test_concurrent_uses_restore_the_number_when_the_last_ends(library: Library) -> None:
    first, second = limited_threads(2), limited_threads(5)
    first.__enter__()
    second.__enter__()
    assert library.threads == 5
    first.__exit__(None, None, None)
    assert library.threads == 5
    second.__exit__(None, None, None)
    assert library.threads == 7


def test_threads_may_run_at_once(library: Library) -> None:
    session = cfgraph.Session(product(), blas_threads=2)
    workers = [
        threading.Thread(target=lambda: [multiply(session) for _ in range(20)]) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert library.threads == 7


@pytest.mark.parametrize("size", [4, 256])
def test_small_products_have_one_thread(library: Library, size: int) -> None:
    multiply(cfgraph.Session(product(None), blas_threads="auto"), size)
    assert library.history == [1, 7]


def test_large_products_have_several_threads(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    multiply(cfgraph.Session(product(None), blas_threads="auto"), 1024)
    assert library.history == [4, 7]


@pytest.mark.parametrize(("window", "stride", "threads"), [(1, 2, 1), (1, 1, 1), (3, 1, 2)])
def test_convolutions_have_threads_by_their_products(
    window: int, stride: int, threads: int, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    b = cfgraph.Builder()
    x = b.Placeholder(name="x", dtype="float32")
    w = b.Const(value=np.ones((window, window, 512, 64), np.float32), dtype="float32", name="w")
    b.Conv2D(x, w, strides=[1, stride, stride, 1], padding="SAME", name="y")
    image = np.ones((1, 48, 48, 512), np.float32)
    cfgraph.Session(b.graph, blas_threads="auto").run(["y:0"], {"x:0": image})
    assert library.history == [threads, 7]


def test_products_of_large_constants_count(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(2)))
    b = cfgraph.Builder()
    x = b.Const(value=np.ones((1024, 1024), np.float32), dtype="float32", name="x")
    b.MatMul(x, x, name="y")
    cfgraph.Session(b.graph, blas_threads="auto").run(["y:0"])
    assert library.history == [2, 7]


def test_the_environment_of_the_user_wins(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    multiply(cfgraph.Session(product(), blas_threads="auto"))
    start_with_one_thread()
    assert library.history == []
    assert "OPENBLAS_DEFAULT_NUM_THREADS" not in os.environ


def test_a_process_that_starts_with_one_thread_needs_no_limit(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_DEFAULT_NUM_THREADS", "1")
    multiply(cfgraph.Session(product(), blas_threads="auto"))
    assert library.history == []


@pytest.mark.parametrize("count", [0, -1, True, "many", 1.5])
def test_other_numbers_are_rejected(count: Any) -> None:
    with pytest.raises(UsageError, match="blas_threads"):
        cfgraph.Session(product(), blas_threads=count)


def test_the_real_library_is_limited() -> None:
    import threadpoolctl

    def threads() -> list[int]:
        info = threadpoolctl.threadpool_info()
        return [lib["num_threads"] for lib in info if lib["user_api"] == "blas"]

    before = threads()
    with limited_threads(1):
        assert set(threads()) == {1}
    assert threads() == before


def test_the_command_starts_with_one_thread(tmp_path: Path) -> None:
    cfgraph.save(product(), tmp_path / "product.pb")
    options = ["run", "product.pb", "--feed", "x=f32[4,4]:ones", "--fetch", "y:0"]
    script = (
        "import sys; from cfgraph.__main__ import main\n"
        f"sys.argv = ['cfgraph', *{options}]\n"
        "try: main()\n"
        "finally:\n"
        "    assert 'threadpoolctl' not in sys.modules\n"
        "    import threadpoolctl\n"
        "    print({lib['num_threads'] for lib in threadpoolctl.threadpool_info()})\n"
    )
    done = run([sys.executable, "-c", script], tmp_path)
    assert done.stdout.splitlines()[-1] == "{1}", done.stderr


def test_the_command_rejects_other_numbers(tmp_path: Path) -> None:
    cfgraph.save(product(), tmp_path / "product.pb")
    command = [
        "cfgraph",
        "run",
        "product.pb",
        "--feed",
        "x=f32[4,4]:ones",
        "--blas-threads",
        "many",
    ]
    done = run(command, tmp_path)
    assert done.returncode == 2
    assert "blas_threads must be a positive number or auto" in done.stderr


def test_a_run_beside_a_busy_process_leaves_it_a_core(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blas_threads, "_processors", lambda: 4)
    with leave_a_core():
        assert library.threads == 3
    assert library.threads == 7
    with limited_threads(2), leave_a_core():
        assert library.threads == 2
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    with leave_a_core():
        assert library.threads == 7
