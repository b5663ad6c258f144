"""Conversion between graphs and protobuf messages; the only code that imports `cfgraph.proto`."""
