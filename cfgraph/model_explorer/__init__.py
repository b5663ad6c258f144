"""Extension of Model Explorer: `model-explorer --extensions=cfgraph.model_explorer`."""
