"""JSON Schemas of what commands answer with under `--json`; `cfgraph --schema NAME` prints one."""
