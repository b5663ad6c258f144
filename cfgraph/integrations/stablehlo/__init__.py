"""StableHLO modules, read and run in a process of their own."""

from typing import Final

PROVIDES: Final = {
    ("modules", "bodies"): "module_process:module_bodies",
    ("modules", "run"): "module_process:run_module",
    ("modules", "text"): "module_process:module_text",
}
