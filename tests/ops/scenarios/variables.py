"""Scenarios of variables, in both forms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfgraph.ir.dtypes import DType, float32, float64, int32, int64, string
from cfgraph.ir.graph import Output
from cfgraph.ir.shapes import UNKNOWN_SHAPE, Shape
from tests.ops.scenario import Runs, Scenario, Sketch


def assign_and_update(g: Sketch) -> Runs:
    v = g("VariableV2", dtype=float32, shape=Shape([2]))
    init = g("Assign", v, [1.0, 2.0])
    more = g("AssignAdd", v, [10.0, 20.0])
    less = g("AssignSub", v, [1.0, 1.0])
    known = g("IsVariableInitialized", v)
    read = g("Identity", v)
    return [[known], [read], [init], [known, read], [more], [less, read], [read]]


def the_first_form(g: Sketch) -> Runs:
    v = g("Variable", dtype=int32, shape=Shape([]))
    init = g("Assign", v, 3)
    return [[v], [init], [v], [g("AssignAdd", v, 4)], [g("AssignAdd", v, g.hidden([4]))], [v]]


def assign_checks_shapes(g: Sketch) -> Runs:
    v = g("VariableV2", dtype=float32, shape=UNKNOWN_SHAPE)
    scalar = g("Assign", v, 1.0)
    wrong = g("Assign", v, g.hidden([3.0, 3.0]))
    loose = g("Assign", v, [1.0, 2.0, 3.0], validate_shape=False)
    runs = [[wrong], [scalar], [wrong], [loose], [v], [scalar], [wrong], [v]]
    return [*runs, [g("AssignAdd", v, g.hidden([3.0, 3.0]))]]


def strings_and_bools(g: Sketch) -> Runs:
    text = g("VariableV2", dtype=string, shape=Shape([2]))
    flag = g("VarHandleOp", dtype=DType.from_name("bool"), shape=Shape([]))
    write = g("AssignVariableOp", flag, np.bool_(True)).node
    read = g("ReadVariableOp", flag, dtype=DType.from_name("bool"))
    return [[g("Assign", text, ["a", "bc"])], [text], [write], [read]]


def shared_by_name(g: Sketch) -> Runs:
    one = g("VariableV2", dtype=int32, shape=Shape([]), shared_name="v")
    other = g("VariableV2", dtype=int32, shape=Shape([]), shared_name="v")
    boxed = g("VariableV2", dtype=int32, shape=Shape([]), shared_name="v", container="c")
    floats = g("VariableV2", dtype=float32, shape=Shape([]), shared_name="v")
    return [[g("Assign", one, 7)], [other], [boxed], [floats]]


def count_up(g: Sketch) -> Runs:
    v = g("VariableV2", dtype=int64, shape=Shape([]))
    h = g("VarHandleOp", dtype=int32, shape=Shape([]))
    init = [g("Assign", v, np.int64(1)), g("AssignVariableOp", h, 0).node]
    count = g("CountUpTo", v, limit=3)
    more = g("ResourceCountUpTo", h, limit=2, T=int32)
    return [[count], [more], init, [count, more], [count, more], [count], [more], [v]]


def temporary(g: Sketch) -> Runs:
    v = g("TemporaryVariable", dtype=float32, shape=Shape([2]), var_name="t")
    init = g("Assign", v, [1.0, 2.0])
    more = g("AssignAdd", init, [1.0, 1.0])
    end = g("DestroyTemporaryVariable", more, var_name="t")
    return [[end], [end]]


def destroyed_by_another_name(g: Sketch) -> Runs:
    v = g("TemporaryVariable", dtype=float32, shape=Shape([2]), var_name="t")
    init = g("Assign", v, [1.0, 2.0])
    return [[g("DestroyTemporaryVariable", init, var_name="other")]]


def _temporary(g: Sketch, value: float, controls: Sequence[Output] = ()) -> Output:
    v = g("TemporaryVariable", dtype=float32, shape=Shape([]), var_name="t", controls=controls)
    return g("Assign", v, value)


def two_of_one_name(g: Sketch) -> Runs:
    first = _temporary(g, 1.0)
    second = _temporary(g, 2.0, [first])
    return [[second], [first], [second]]


def a_name_is_free_once_destroyed(g: Sketch) -> Runs:
    end = g("DestroyTemporaryVariable", _temporary(g, 1.0), var_name="t")
    again = g("DestroyTemporaryVariable", _temporary(g, 2.0, [end]), var_name="t")
    return [[end, again], [again]]


def guaranteed_handle(g: Sketch) -> Runs:
    v = g("VarHandleOp", dtype=float32, shape=Shape([2]))
    return [[g("GuaranteeConst", v)], [g("GuaranteeConst", np.float32(2))]]


def resource(g: Sketch) -> Runs:
    v = g("VarHandleOp", dtype=float32, shape=Shape([2]))
    read = g("ReadVariableOp", v, dtype=float32)
    known = g("VarIsInitializedOp", v)
    shape = g("VariableShape", v)
    long = g("VariableShape", v, out_type=int64)
    init = g("AssignVariableOp", v, [1.0, 2.0]).node
    more = g("AssignAddVariableOp", v, [1.0, 1.0]).node
    less = g("AssignSubVariableOp", v, [3.0, 1.0]).node
    wrong = g("AssignAddVariableOp", v, g.hidden([1.0, 1.0, 1.0])).node
    drop = g("DestroyResourceOp", v).node
    strict = g("DestroyResourceOp", v, ignore_lookup_error=False).node
    early = [[known], [read], [shape], [more], [strict], [drop]]
    late = [[init], [known, read, shape, long], [more], [read], [less], [read], [wrong]]
    return [*early, *late, [drop], [known], [read], [init], [strict], [known]]


def handles_without_a_name_share(g: Sketch) -> Runs:
    one = g("VarHandleOp", dtype=float32, shape=Shape([]))
    other = g("VarHandleOp", dtype=float32, shape=Shape([]))
    named = g("VarHandleOp", dtype=float32, shape=Shape([]), shared_name="named")
    boxed = g("VarHandleOp", dtype=float32, shape=Shape([]), container="box")
    init = g("AssignVariableOp", one, 1.0).node
    return [[init], *([g("ReadVariableOp", v, dtype=float32)] for v in (other, named, boxed))]


def resource_types_and_shapes(g: Sketch) -> Runs:
    v = g("VarHandleOp", dtype=float32, shape=UNKNOWN_SHAPE)
    init = g("AssignVariableOp", v, [1.0, 2.0]).node
    loose = g("AssignVariableOp", v, [1.0]).node
    strict = g("AssignVariableOp", v, g.hidden([1.0, 2.0, 3.0]), validate_shape=True).node
    read = g("ReadVariableOp", v, dtype=float32)
    other = g("VarHandleOp", dtype=float64, shape=UNKNOWN_SHAPE, shared_name=v.node.name)
    double = g("ReadVariableOp", other, dtype=float64)
    return [[init], [read], [strict], [loose], [read], [strict], [double]]


def several_handles(g: Sketch) -> Runs:
    both = g(
        "_VarHandlesOp",
        containers=(b"", b""),
        shared_names=(b"a", b"b"),
        N=2,
        dtypes=(float32, int32),
        shapes=(Shape([]), Shape([])),
    ).node
    a, b = both.output(0), both.output(1)
    init = [g("AssignVariableOp", a, 1.5).node, g("AssignVariableOp", b, 4).node]
    read = g("_ReadVariablesOp", a, b, N=2, dtypes=(float32, int32)).node
    return [[read.output(0)], init, [read.output(0), read.output(1)]]


def the_old_array_stays(g: Sketch) -> Runs:
    v = g("VarHandleOp", dtype=float32, shape=Shape([3]))
    init = g("AssignVariableOp", v, [1.0, 2.0, 3.0]).node
    read = g("ReadVariableOp", v, dtype=float32)
    change = g("ResourceScatterUpdate", v, [0], [9.0], controls=[read]).node
    old = g("Identity", read, controls=[change])
    return [[init], [old], [read]]


def gather(g: Sketch) -> Runs:
    v = g("VarHandleOp", dtype=float32, shape=Shape([3, 2]))
    init = g("AssignVariableOp", v, np.arange(6, dtype=np.float32).reshape(3, 2)).node
    rows = [
        g("ResourceGather", v, indices, dtype=float32, batch_dims=batch)
        for indices, batch in (
            ([2, 0], 0),
            (1, 0),
            ([[1], [0], [1]], 1),
            (g.hidden([3]), 0),
            (g.hidden([-1]), 0),
        )
    ]
    none = g("ResourceGather", v, np.zeros([0], np.int32), dtype=float32)
    places = [
        g("ResourceGatherNd", v, indices, dtype=float32)
        for indices in ([[0, 1], [2, 0]], [[1]], g.hidden([[3, 0]]))
    ]
    return [[rows[0]], [init], *([item] for item in [*rows, none, *places])]


SCENES: list[Scenario] = [
    assign_and_update,
    the_first_form,
    assign_checks_shapes,
    strings_and_bools,
    shared_by_name,
    count_up,
    temporary,
    destroyed_by_another_name,
    two_of_one_name,
    a_name_is_free_once_destroyed,
    guaranteed_handle,
    resource,
    resource_types_and_shapes,
    several_handles,
    handles_without_a_name_share,
    the_old_array_stays,
    gather,
]
