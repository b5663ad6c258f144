"""What a `run` says of the clusters that it ran."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from cfgraph.ir.units import format_duration
from cfgraph.runtime.clusters import Cluster
from cfgraph.runtime.launch import Launches

# recompilations of one cluster that are listed
_SHOWN: Final = 3


def ran(launches: Launches) -> list[Cluster]:
    """The clusters that were called."""
    return [cluster for cluster in launches.clusters.values() if cluster.calls]


def cluster_notes(launches: Launches) -> Iterator[str]:
    """What ran the clusters, how often, and what was compiled again for which argument."""
    clusters = ran(launches)
    if not clusters:
        return
    calls, fused = sum(one.calls for one in clusters), sum(one.fused for one in clusters)
    by = "NumPy" if fused == calls else "XLA"
    parts = [f"{_count(clusters)} run by {by}: {calls} call{'s' * (calls != 1)}"]
    if fused and fused != calls:
        parts.append(f"{fused} of them by NumPy")
    times = sum(one.compiled_times for one in clusters)
    if times:
        seconds = sum(one.seconds for one in clusters)
        parts.append(f"{times} compilation{'s' * (times != 1)} in {format_duration(seconds * 1e9)}")
    yield ", ".join(parts)
    small = [one for one in clusters if one.small]
    if small:
        yield f"{_count(small)} left to NumPy, too small to gain by XLA; --engine xla takes all"
    for one in clusters:
        yield from _again(one)


def _count(clusters: Collection[Cluster]) -> str:
    return f"{len(clusters)} cluster{'s' * (len(clusters) != 1)}"


def _again(cluster: Cluster) -> Iterator[str]:
    """What was compiled again or not at all."""
    if cluster.refused:
        yield f"{cluster.name} is left to NumPy: {cluster.refused}"
    told = [item for item in cluster.compilations if item.changed or item.refused]
    for item in told[:_SHOWN]:
        yield str(item)
    if len(told) > _SHOWN:
        yield f"{cluster.name}: {len(told) - _SHOWN} more"


def clusters_json(launches: Launches) -> dict[str, Any]:
    """The same as a member of a command's JSON document."""
    return {
        "engine": launches.engine,
        "clusters": [
            {
                "name": one.name,
                "calls": one.calls,
                "fused": one.fused,
                "small": one.small,
                "refused": one.refused or None,
                "compilations": [
                    {
                        "node": item.node,
                        "seconds": item.seconds,
                        "changed": item.changed or None,
                        "refused": item.refused or None,
                    }
                    for item in one.compilations
                ],
            }
            for one in ran(launches)
        ],
    }
