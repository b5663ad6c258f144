"""The token executor: plans, linked closures, frames, and rendezvous.

plan                 the nodes of each device, with kernels, slots, and pending counts
  references           inputs that are variables until a kernel reads them
  joint_products       matrix products that the node that reads them computes
link                 a closure per node for live tokens, and one for dead ones
  control_flow_nodes   those of Switch, Merge, Enter, Exit, NextIteration, and LoopCond
  kernel_nodes         those of nodes with a kernel, and of Send and Recv
  propagate            frames, iterations, and when a node is ready
  rendezvous           messages between devices
executor             the queue of the ready closures of a device
step                 what kernels of stateful ops see of a run
"""
