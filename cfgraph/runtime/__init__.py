"""Execution of graphs on simulated or real devices, with tracing.

    Session.run
      run_names          names of a run as tensors and nodes
      prepared_runs      one prepared run per fetch-set, until the graph changes
        prepare            from the graph to plans, and to generated code where possible
        backends/xla/tier  the choice between generated code and XLA for a repeated run
      executors          the maker of RunExecutors, each with the state of one run:
        compiled/engine    generated code on one or several devices
        token_driver       the token executors of all devices, one in engine/ per device
        backends           with a virtual clock, with kernels on a real GPU, and on workers

The token executor explains the errors of generated code: quiescent_state, deadlock.
"""
