"""Loops on several worker processes, against TensorFlow's servers on the same graphs.

Both sides run the same file, whose nodes name the tasks of a job. One run is a whole step; figures
per iteration are differences between long and short runs. The last rows compare workers on Ray with
plain processes, and links that delay what they carry with those that do not.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

import cfgraph
from benchmarks.delayed_workers import DelayedWorkers, DelayingProxy
from benchmarks.measurement import Row, single_time
from cfgraph.backends.workers.workers import WorkerOptions
from cfgraph.ir.graph import Graph
from tests.backends.workers.handles import worker_handles

_FOLDER: Final = Path(__file__).parents[1] / "fixtures" / "graphs"
_DEVICES: Final = 8
_REPEATS: Final = 5
# of a message between hosts that are far apart
_DELAY_SECONDS: Final = 0.005
_TICK: Final = 1 / os.sysconf("SC_CLK_TCK")

# starts one server; its lists are the addresses, its own task, and the number of CPU devices
_SERVER: Final = """
import sys
import tensorflow as tf
addresses, task, devices = sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3])
config = tf.compat.v1.ConfigProto(device_count={"CPU": devices})
cluster = tf.train.ClusterSpec({"worker": addresses})
server = tf.distribute.Server(cluster, job_name="worker", task_index=task, config=config)
print("ready", flush=True)
sys.stdin.read()
"""

_PAYLOAD: Final = """
n = Placeholder() {dtype=int32, shape=[]}
x = Placeholder() {dtype=float32, shape=?}
zero = Const() {dtype=int32, value=int32[]:0}
count0 = Enter(zero) {frame_name="loop"}
value0 = Enter(x) {frame_name="loop"}
limit = Enter(n) {frame_name="loop", is_constant=true}
count = Merge(count0, count3)
value = Merge(value0, value3)
less = Less(count, limit)
cond = LoopCond(less)
count1 = Switch(count, cond)
value1 = Switch(value, cond)
count2 = Identity(count1:1)
one = Const(^count2) {dtype=int32, value=int32[]:1}
step = AddV2(count2, one)
there = Relu(value1:1)
back = Neg(there)
count3 = NextIteration(step)
value3 = NextIteration(back)
done = Exit(count1)
out = Exit(value1)
last = Sum(out, axis)
axis = Const() {dtype=int32, value=int32[1]:[0]}
"""


def measure(tf: ModuleType | None, *, tiny: bool) -> Iterator[Row]:
    """A counter, loops over eight devices, and large messages."""
    iterations = 300 if tiny else 1000
    rows = _loop(tf, "counter over 2 processes", counter(), 2, ["count:0"], iterations, 0.35)
    if tiny:
        yield next(rows)
        return
    yield from rows
    outs = [f"out{number}:0" for number in range(_DEVICES)]
    for workers, budget in ((2, 0.35), (4, 0.35), (8, 0.40)):
        graph = eight_devices("eight_devices_barrier.pb", workers)
        work = f"barrier loop over {workers} processes"
        yield from _loop(tf, work, graph, workers, outs, iterations, budget)
    graph = eight_devices("eight_devices.pb", 4)
    yield from _loop(tf, "loop without barrier over 4", graph, 4, outs, iterations, 0.40)
    data = np.ones(16 << 20, np.float32)
    yield from _loop(tf, "64 MB round trip", payload(), 2, ["last:0"], 10, 0.8, {"x:0": data})
    yield from _over_ray(iterations)
    for parallel in (1, 32):
        yield from _delayed_loop(tf, parallel)


def _loop(
    tf: ModuleType | None,
    work: str,
    graph: Graph,
    workers: int,
    fetches: Sequence[str],
    iterations: int,
    budget: float,
    feeds: dict[str, Any] | None = None,
) -> Iterator[Row]:
    """The time of an iteration, and the processor time of all workers."""
    per_worker = _DEVICES // workers if len(fetches) == _DEVICES else 1
    with (
        our_run(graph, workers, per_worker, fetches) as ours,
        peer_run(tf, graph, workers, per_worker, fetches) as peer,
    ):
        sides = [side for side in (ours, peer) if side is not None]
        for side in sides:
            side.run({**(feeds or {}), "n:0": 1})
        for _ in range(_REPEATS):
            for side in sides:
                side.measure({**(feeds or {}), "n:0": 1}, {**(feeds or {}), "n:0": iterations + 1})
    for index, kind in enumerate(("", ", processor time")):
        figures = [side.seconds[index] / iterations * 1e6 for side in sides]
        limit = budget if not kind else None
        theirs = figures[1] if len(figures) > 1 else None
        yield Row(f"{work}{kind}", figures[0], "µs an iteration", theirs, limit)


def _over_ray(iterations: int) -> Iterator[Row]:
    """The counter on workers of Ray, against plain processes."""
    if find_spec("ray") is None:
        return
    graph, fetches = counter(), ["count:0"]
    with (
        our_run(graph, 2, 1, fetches, cfgraph.Ray("local")) as ray,
        our_run(graph, 2, 1, fetches) as processes,
    ):
        for _ in range(2 * _REPEATS):
            for side in (ray, processes):
                side.measure({"n:0": 1}, {"n:0": iterations + 1})
    works = ("counter over 2 workers of Ray", "counter over 2 workers of Ray, processor time")
    for work, budget, mine, theirs in zip(
        works, (1.3, None), ray.seconds, processes.seconds, strict=True
    ):
        yield Row(
            work, mine / iterations * 1e6, "µs an iteration", theirs / iterations * 1e6, budget
        )
    yield Row("step of one iteration on Ray", ray.short * 1e3, "ms", processes.short * 1e3)


def _delayed_loop(tf: ModuleType | None, parallel: int) -> Iterator[Row]:
    """A loop that reads a result of the other worker, with 5 ms of delay on each way."""
    graph, fetches, iterations = pipelined(parallel), ["out:0"], 100
    workers = DelayedWorkers(cfgraph.Processes(), _DELAY_SECONDS)
    with (
        our_run(graph, 2, 1, fetches, workers) as ours,
        peer_run(tf, graph, 2, 1, fetches, _DELAY_SECONDS) as peer,
    ):
        sides = [side for side in (ours, peer) if side is not None]
        for _ in range(_REPEATS):
            for side in sides:
                side.measure({"n:0": 1}, {"n:0": iterations + 1})
    figures = [side.seconds[0] / iterations * 1e6 for side in sides]
    work = f"delay of 5 ms, {parallel} iterations in parallel"
    theirs = figures[1] if len(figures) > 1 else None
    yield Row(work, figures[0], "µs an iteration", theirs, 1.0 if parallel > 1 else None)


class Side:
    """cfgraph or TensorFlow: a run of the graph, and its processes."""

    def __init__(self, run: Callable[[dict[str, Any]], object], pids: Sequence[int]) -> None:
        self.run = run
        self.pids = pids
        self.short = self.long = self.busy = float("inf")

    def measure(self, short: dict[str, Any], long: dict[str, Any]) -> None:
        """Time a short and a long run; the least times count."""
        self.short = min(self.short, single_time(lambda: self.run(short)))
        before = self.processor_time()
        self.long = min(self.long, single_time(lambda: self.run(long)))
        self.busy = min(self.busy, self.processor_time() - before)

    @property
    def seconds(self) -> tuple[float, float]:
        """The time of all iterations of the long run, and the processor time."""
        return self.long - self.short, self.busy

    def processor_time(self) -> float:
        """The seconds that the processes have used."""
        return sum(_processor_time(pid) for pid in self.pids)


def _processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK


@contextmanager
def our_run(
    graph: Graph,
    workers: int,
    per_worker: int,
    fetches: Sequence[str],
    options: WorkerOptions | None = None,
) -> Iterator[Side]:
    """The run on worker processes, unless the options name others."""
    devices = f"/job:worker/task:0-{workers - 1}/cpu:0-{per_worker - 1}"
    with cfgraph.Session(graph, devices=devices, workers=options or cfgraph.Processes()) as session:
        session.run(fetches, {"n:0": 1} | _small_feeds(graph))
        pids = [handle.pid for handle in worker_handles(session)]
        yield Side(lambda feeds: session.run(fetches, feeds), pids)


def _small_feeds(graph: Graph) -> dict[str, Any]:
    return {"x:0": np.ones(1, np.float32)} if "x" in graph else {}


@contextmanager
def peer_run(
    tf: ModuleType | None,
    graph: Graph,
    workers: int,
    per_worker: int,
    fetches: Sequence[str],
    delay: float = 0.0,
) -> Iterator[Side | None]:
    """The run on TensorFlow's servers, one per process, with a delay of messages between them."""
    if tf is None:
        yield None
        return
    v1 = tf.compat.v1
    ports = _free_ports(workers)
    addresses = [f"localhost:{port}" for port in ports]
    proxies = [DelayingProxy(("localhost", port), delay) for port in ports] if delay else []
    near = [addresses] * workers
    if proxies:
        far = [f"localhost:{proxy.address[1]}" for proxy in proxies]
        near = [[*far[:n], addresses[n], *far[n + 1 :]] for n in range(workers)]
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", _SERVER, ",".join(near[task]), str(task), str(per_worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for task in range(workers)
    ]
    try:
        for server in servers:
            assert server.stdout is not None
            server.stdout.readline()
        with tf.Graph().as_default() as imported:
            v1.import_graph_def(v1.GraphDef.FromString(cfgraph.dumps(graph)), name="")
        config = v1.ConfigProto()
        # rewrites move the ops of the payload together, so that nothing is sent
        config.graph_options.rewrite_options.disable_meta_optimizer = "x" in graph
        with v1.Session(f"grpc://{addresses[0]}", graph=imported, config=config) as session:
            pids = [server.pid for server in servers]
            yield Side(lambda feeds: session.run(list(fetches), feeds), pids)
    finally:
        for server in servers:
            server.kill()
            server.wait()
        for proxy in proxies:
            proxy.close()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _task_device(task: int, number: int = 0) -> str:
    return f"/job:worker/replica:0/task:{task}/device:CPU:{number}"


def counter() -> Graph:
    """The counter, its addition on the second worker."""
    graph = cfgraph.load(_FOLDER / "counter.pb")
    for node in graph:
        node.device = _task_device(1 if node.name == "while/add" else 0)
    return graph


def eight_devices(name: str, workers: int) -> Graph:
    """A loop over eight devices, in equal shares on the workers."""
    graph, share = cfgraph.load(_FOLDER / name), _DEVICES // workers
    for node in graph:
        number = int(node.device.rpartition(":")[2]) if node.device else 0
        node.device = _task_device(number // share, number % share)
    return graph


def payload() -> Graph:
    """A loop that sends an array to the second worker and back."""
    graph = cfgraph.loads(_PAYLOAD.encode(), "graph")
    for node in graph:
        node.device = _task_device(1 if node.name == "there" else 0)
    return graph


def pipelined(parallel: int) -> Graph:
    """A loop on the first worker that sums up results of the second, which need no other result."""
    b = cfgraph.Builder()
    with b.device(_task_device(0)):
        n = b.placeholder("n", "int32")

    def body(number: Any, total: Any) -> Any:
        with b.device(_task_device(1)):
            doubled = b.Mul(number, b.const(2))
        with b.device(_task_device(0)):
            return number + 1, total + doubled

    with b.device(_task_device(0)):
        start = b.const(0), b.const(0)
        total = b.while_loop(lambda i, _: i < n, body, start, parallel_iterations=parallel)[1]
        b.Identity(total, name="out")
    return b.graph
