"""JSON Schemas of the output of commands with `--json`; `cfgraph --schema NAME` prints one."""
