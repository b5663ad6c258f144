"""Programs of a checkout that use cfgraph."""
