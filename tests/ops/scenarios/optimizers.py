"""Scenarios of optimizers: every form of every rule, several steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from cfgraph.ir import registry
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Output
from cfgraph.ir.shapes import Shape
from cfgraph.ops.opdef.op import lookup
from tests.ops.scenario import Runs, Scenario, Sketch

PREFIXES = ("ResourceSparseApply", "ResourceApply", "SparseApply", "Apply")
SCALARS = {
    "alpha": 0.1,
    "beta": 0.9,
    "beta1": 0.9,
    "beta1_power": 0.81,
    "beta2": 0.99,
    "beta2_power": 0.97,
    "epsilon": 1e-3,
    "l1": 0.05,
    "l2": 0.02,
    "l2_shrinkage": 0.1,
    "logbase": 1.1,
    "lr": 0.1,
    "lr_power": -0.5,
    "momentum": 0.9,
    "rho": 0.9,
    "sign_decay": 0.8,
}
VAR = np.array([[1.0, -2.0], [3.0, 0.5], [-0.25, 0.01]])
GRADS = [
    np.array([[0.1, 0.2], [-0.3, 0.0], [1.5, -2.0]]),
    np.array([[1.0, -0.2], [0.3, 1.0], [0.5, 2.0]]),
]
INDICES = [[2, 0, 1], [0, 0, 2]]


def steps(
    op: str, dtype: Any = np.float32, change: dict[str, float] | None = None, **attrs: Any
) -> Scenario:
    """Two steps of an optimizer, reading the variable and its slots after each."""

    def scene(g: Sketch) -> Runs:
        definition = lookup(op)
        assert definition is not None
        of = DType.from_numpy(dtype)
        sparse, is_ref = "Sparse" in op, not op.startswith("Resource")
        scalars = SCALARS | (change or {})
        cells, init, reads = list[Output](), list[Any](), list[Output]()
        applied: list[list[Any]] = []
        for step, grad in enumerate(GRADS):
            inputs: list[Any] = []
            place = 0
            for arg in definition.parsed().inputs:
                if arg.is_ref or (arg.dtype and arg.dtype.kind == "resource"):
                    if not step:
                        start = (VAR if not place else np.full_like(VAR, 0.5) * place).astype(dtype)
                        shape = Shape(start.shape)
                        if is_ref:
                            cells.append(g("VariableV2", dtype=of, shape=shape))
                            init.append(g("Assign", cells[-1], start))
                            reads.append(g("Identity", cells[-1]))
                        else:
                            cells.append(
                                g("VarHandleOp", dtype=of, shape=shape, shared_name=f"v{place}")
                            )
                            init.append(g("AssignVariableOp", cells[-1], start).node)
                            reads.append(g("ReadVariableOp", cells[-1], dtype=of))
                    inputs.append(cells[place])
                    place += 1
                elif arg.name in ("grad", "delta"):
                    inputs.append(grad.astype(dtype))
                elif arg.name == "indices":
                    inputs.append(INDICES[step])
                elif arg.name == "global_step":
                    inputs.append(np.int64(step + 1))
                else:
                    inputs.append(np.asarray(scalars[arg.name], dtype))
            done = g(op, *inputs, **attrs)
            applied.append([done if is_ref else done.node])
        assert sparse == ("indices" in [a.name for a in definition.parsed().inputs])
        return [applied[0], init, reads, applied[0], reads, applied[1], reads]

    more = "_".join(f"{k}={v}" for k, v in {**attrs, **(change or {})}.items())
    scene.__name__ = f"{op}_{np.dtype(dtype).name}_{more}"
    return scene


def every_op() -> list[str]:
    """The ops that apply a rule."""
    return [name for name in registry.op_names() if name.startswith(PREFIXES)]


def with_option(option: str) -> list[str]:
    """The ops with this attribute."""
    return [op for op in every_op() if option in registry.lookup(op).parsed().attrs]


def of_rules(*rules: str) -> list[str]:
    """The ops of these rules."""
    return [op for op in every_op() for rule in rules if op in [p + rule for p in PREFIXES]]


def grad_of_another_shape(g: Sketch) -> Runs:
    v = g("VarHandleOp", dtype=DType.from_name("float32"), shape=Shape([2]))
    init = g("AssignVariableOp", v, [1.0, 2.0]).node
    wrong = g("ResourceApplyGradientDescent", v, 0.1, g.hidden([1.0])).node
    return [[init], [wrong]]


def rows_out_of_range(g: Sketch) -> Runs:
    v = g("VariableV2", dtype=DType.from_name("float32"), shape=Shape([2]))
    a = g("VariableV2", dtype=DType.from_name("float32"), shape=Shape([2]))
    init = [g("Assign", v, [1.0, 2.0]), g("Assign", a, [1.0, 2.0])]
    runs = [
        [g("SparseApplyAdagrad", v, a, 0.1, g.hidden(grad), g.hidden(indices))]
        for grad, indices in (([1.0], [2]), ([1.0], [-1]), ([1.0, 2.0], [1]), ([1.0], [1]))
    ]
    return [init, *runs, [v, a]]


FTRL = of_rules("Ftrl", "FtrlV2")
L1 = of_rules("Ftrl", "ProximalGradientDescent", "ProximalAdagrad", "AdagradDA")
SCENES = [
    *map(steps, every_op()),
    *(steps(op, np.float64) for op in every_op()),
    *(steps(op, np.float16) for op in of_rules("Momentum", "Adam", "RMSProp", "Adagrad", "Ftrl")),
    *(steps(op, use_nesterov=True) for op in with_option("use_nesterov")),
    *(steps(op, update_slots=False) for op in with_option("update_slots")),
    *(steps(op, multiply_linear_by_lr=True) for op in with_option("multiply_linear_by_lr")),
    *(steps(op, change={"lr_power": -0.7}) for op in FTRL),
    *(steps(op, change={"l1": 0.0}) for op in L1),
    *(steps(op, change={"l2": 0.0}) for op in L1),
    *(steps(op, change={"l1": -1.0}) for op in L1),
    *(steps(op, change={"l2": -1.0}) for op in L1),
    *(steps(op, change={"lr": 0.0}) for op in L1 if "Descent" not in op),
    *(steps(op, change={"lr_power": 0.5}) for op in FTRL),
    *(steps(op, change={"l2_shrinkage": -0.5}) for op in of_rules("FtrlV2")),
    grad_of_another_shape,
    rows_out_of_range,
]
