"""Execution of graphs on simulated or real devices, with tracing.

    Session.run
      run_names          names of a run as tensors and nodes
      prepared_runs      one prepared run per fetch-set, until the graph changes
        prepare            from the graph to plans, and to generated code where possible
        xla_tier           the choice between generated code and XLA for a repeated run
      executors          the maker of RunExecutors, each with the state of one run:
        compiled/engine    generated code on one or several devices
        simulator          the token executors of all devices, one in engine/ per device
        virtual_time         with a virtual clock
        gpu_simulator        with kernels on a real GPU
        remote/driver      workers, each with generated code or token executors

The token executor explains the errors of generated code: quiescent_state, deadlock.
"""
