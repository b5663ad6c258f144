"""Compiled engine: straight-line Python for the plans of a run.

engine               generates, compiles, and runs the code of a run
  interpreter          its first run, if it has no control flow
  merged_devices       several devices as one
  generate             loops, branches, and the order of the code
    plan_liveness        the path condition of each node, and what has none
    schedule             the order of the code, which opens few branches
    node_writer          the lines of a node, and the functions that they call
  outlining            several functions for code that is nested deeply
  stored_code          the code in a cache
  code_position        the node and the iteration of an error
  call_deadlines       the timeout of a call
decompile            the code of a run as a Python file for readers
  definitions          its constants and kernels
  value_expressions    Python text of values
  identifiers          names of variables
  script               the functions that the file imports
"""
