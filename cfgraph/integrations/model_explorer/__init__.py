"""Files for Model Explorer, which draws graphs as nested layers: graphs, and data per node."""
