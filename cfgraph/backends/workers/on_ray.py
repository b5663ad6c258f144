"""Workers as Ray actors. The only module that imports ray.

Ray starts, places, and watches the workers; messages of a step use their own links.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, Final

from cfgraph.backends.workers.processes import (
    DEFAULT_LOST_AFTER,
    require_positive,
    wait_for_starts,
)
from cfgraph.backends.workers.worker import Worker
from cfgraph.backends.workers.workers import WorkerDied
from cfgraph.errors import Unsupported, UsageError, install_hint
from cfgraph.ir.devices import is_gpu

_STRATEGIES: Final = {"": "PACK", "hosts": "STRICT_SPREAD"}
# calls that run in parallel to others: a step, and the pings of the driver
_GROUPS: Final = {"step": "steps", "ping": "pings"}
_PLACEMENT_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Ray:
    """Workers as Ray actors, one per task of the devices or `workers` in all.

    `address` is `local` for a Ray of its own on this machine, `auto` for the cluster that
    RAY_ADDRESS names, or the address of a cluster. With `spread="hosts"` each worker is on another
    host. A worker that is silent for `lost_after` seconds is lost. Raises UsageError for other
    values.
    """

    address: str = "local"
    workers: int | None = None
    lost_after: float = DEFAULT_LOST_AFTER
    spread: str = ""

    def __post_init__(self) -> None:
        require_positive(self.workers, self.lost_after)
        if self.spread not in _STRATEGIES:
            raise UsageError(f"unknown spread {self.spread!r}", hint='spread="hosts"')

    def transport(self) -> RayTransport:
        """The transport that starts the workers. Raises Unsupported without the extra `ray`."""
        return RayTransport(self)


class RayTransport:
    """Transport that starts the workers of a session as Ray actors."""

    def __init__(self, options: Ray) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            if error.name != "ray":
                raise
            message = "workers on Ray need the package ray"
            raise Unsupported(message, hint=install_hint("ray"), code="CFG723") from None
        self._ray, self._options = ray, options
        self._handles: list[_RayHandle] = []
        self._group: Any = None
        self._owns_cluster = False

    def start(self, devices: Sequence[Sequence[str]], secret: bytes) -> list[_RayHandle]:
        """Start one actor for each list of devices."""
        ray, options = self._ray, self._options
        if not ray.is_initialized():
            self._connect()
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundles = [_resources(owned, local=options.address == "local") for owned in devices]
        strategy = _STRATEGIES[options.spread]
        self._group = placement_group(bundles, strategy=strategy)
        try:
            ray.get(self._group.ready(), timeout=_PLACEMENT_SECONDS)
        except ray.exceptions.GetTimeoutError:
            message = f"Ray has no place for {len(devices)} workers"
            raise Unsupported(message, hint=f"they need {bundles}", code="CFG723") from None
        folder = os.getcwd() if options.address == "local" else None
        actor = ray.remote(concurrency_groups={"calls": 1, "steps": 1, "pings": 1})(WorkerActor)
        for index, bundle in enumerate(bundles):
            created = actor.options(
                num_cpus=bundle["CPU"],
                num_gpus=bundle.get("GPU", 0),
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, index),
            ).remote(index, secret, options.lost_after, folder)
            self._handles.append(_RayHandle(ray, created))
        descriptions = wait_for_starts([each.call("description") for each in self._handles])
        for handle, description in zip(self._handles, descriptions, strict=True):
            handle.host, handle.pid = description
        return list(self._handles)

    def _connect(self) -> None:
        ray, local = self._ray, self._options.address == "local"
        environment: dict[str, Any] = {}
        if local:
            environment["env_vars"] = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            with TemporaryDirectory(prefix="cfgraph-") as folder:
                # an empty folder: Ray would let workers import modules of the current one
                environment["working_dir"] = folder
                ray.init(
                    address=self._options.address,
                    include_dashboard=False if local else None,
                    log_to_driver=False,
                    logging_level="error",
                    runtime_env=environment,
                )
        except Exception as error:  # Ray raises this class itself where it starts too slowly
            message = f"cannot connect to Ray at {self._options.address!r}: {error}"
            raise Unsupported(message, hint="--ray local starts one", code="CFG723") from None
        self._owns_cluster = True

    def close(self) -> None:
        """End the actors, and Ray if this session started it."""
        for handle in self._handles:
            handle.kill()
        self._handles.clear()
        if self._group is not None:
            self._ray.util.remove_placement_group(self._group)
            self._group = None
        if self._owns_cluster:
            self._ray.shutdown()


def _resources(devices: Sequence[str], *, local: bool) -> dict[str, float]:
    """The resources of a worker. A Ray of this machine may have fewer processors than workers."""
    gpus = sum(map(is_gpu, devices))
    resources: dict[str, float] = {"CPU": 0.01 if local else 1}
    return {**resources, "GPU": gpus} if gpus and not local else resources


class WorkerActor:
    """A worker in the process of an actor, which other workers reach at the address of its host.

    It runs in a `folder` of this machine, which relative paths start from.
    """

    def __init__(self, index: int, secret: bytes, lost_after: float, folder: str | None) -> None:
        import ray

        if folder is not None:
            os.chdir(folder)
            sys.path[:] = [path for path in sys.path if os.path.isabs(path)]
        self._worker = Worker(index, secret, ray.util.get_node_ip_address(), lost_after)

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of the worker."""
        return getattr(self._worker, method)(*args)


class _RayHandle:
    """One actor."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self.host, self.pid = "", 0

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of the worker."""
        actor = self._actor
        group = _GROUPS.get(method, "calls")
        reference = actor.call.options(concurrency_group=group).remote(method, *args)
        result: Future[Any] = Future()

        def receive() -> None:
            try:
                result.set_result(self._ray.get(reference))
            except self._ray.exceptions.RayActorError:
                result.set_exception(WorkerDied())
            except self._ray.exceptions.RayTaskError as error:
                result.set_exception(error.cause or error)
            except Exception as error:
                result.set_exception(error)

        threading.Thread(target=receive, name="cfgraph-answer", daemon=True).start()
        return result

    def kill(self) -> None:
        """End the actor."""
        self._ray.kill(self._actor)
