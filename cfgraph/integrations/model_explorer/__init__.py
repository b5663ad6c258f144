"""Files for Model Explorer, which draws graphs as nested layers: graphs, and data per node."""

from typing import Final

PROVIDES: Final = {
    ("node data", "cluster"): "cluster_data:ClusterData",
    ("node data", "run"): "run_data:RunNodeData",
}
