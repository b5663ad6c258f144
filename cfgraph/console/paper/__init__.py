"""Experiments of the paper on dynamic control flow: graphs, and a script that runs them."""
