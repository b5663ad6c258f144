"""Extensions of backends and integrations by kind and name; `make generate` writes this file."""

from typing import Final

EXTENSIONS: Final[dict[str, dict[str, str]]] = {
    "compiler": {
        "xla": "cfgraph.backends.xla.compiled_cluster:XlaCompiler",
    },
    "converter": {
        "py": "cfgraph.integrations.python_export.convert:convert_to_python",
    },
    "device": {
        "gpu": "cfgraph.backends.gpu.engine:GpuBackend",
    },
    "modules": {
        "bodies": "cfgraph.integrations.stablehlo.module_process:module_bodies",
        "run": "cfgraph.integrations.stablehlo.module_process:run_module",
        "text": "cfgraph.integrations.stablehlo.module_process:module_text",
    },
    "node data": {
        "cluster": "cfgraph.integrations.model_explorer.cluster_data:ClusterData",
        "run": "cfgraph.integrations.model_explorer.run_data:RunNodeData",
    },
    "renderer": {
        "show": "cfgraph.integrations.notebook.display:show",
        "to_html": "cfgraph.integrations.notebook.display:to_html",
        "to_text": "cfgraph.integrations.notebook.display:to_text",
    },
    "session option": {
        "costs": "cfgraph.backends.simulation.engine:VirtualClockEngine",
        "workers": "cfgraph.backends.workers.engine:WorkerEngine",
    },
    "tier": {
        "xla": "cfgraph.backends.xla.tier:XlaTier",
    },
    "worker options": {
        "processes": "cfgraph.backends.workers.processes:Processes",
        "ray": "cfgraph.backends.workers.on_ray:Ray",
    },
}
