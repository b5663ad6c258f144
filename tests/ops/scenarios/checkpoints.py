"""Scenarios of checkpoints: what TensorFlow wrote, read by both."""

from __future__ import annotations

from pathlib import Path

from cfgraph.ir.dtypes import float32, int32, string
from cfgraph.ir.graph import Output
from cfgraph.ir.shapes import Shape
from tests.ops.scenario import Runs, Sketch

PREFIX = str(Path(__file__).parents[3] / "fixtures" / "saved_model" / "variables" / "variables")
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def restore(g: Sketch) -> Runs:
    names = [f"w{VALUE}", f"steps{VALUE}", f"label{VALUE}"]
    found = g("RestoreV2", PREFIX, names, ["", "", ""], dtypes=(float32, int32, string))
    one = g("RestoreV2", PREFIX, [f"b{VALUE}"], [""], dtypes=(float32,))
    return [[Output(found.node, port) for port in range(3)], [one]]


def restore_missing(g: Sketch) -> Runs:
    no_name = g("RestoreV2", PREFIX, ["nothing"], [""], dtypes=(float32,))
    no_file = g("RestoreV2", f"{PREFIX}_", [f"w{VALUE}"], [""], dtypes=(float32,))
    other_type = g("RestoreV2", PREFIX, [f"w{VALUE}"], [""], dtypes=(int32,))
    return [[no_name], [no_file], [other_type]]


def copies_on_read(g: Sketch) -> Runs:
    v = g("VarHandleOp", dtype=float32, shape=Shape([]), shared_name="v")
    init = g("AssignVariableOp", v, 2.0).node
    return [[init], [g("DisableCopyOnRead", v).node], [g("ReadVariableOp", v, dtype=float32)]]


SCENES = [restore, restore_missing, copies_on_read]
