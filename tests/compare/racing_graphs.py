"""Graphs with a read and a write of a variable in no defined order."""

from __future__ import annotations

NEGATED = """
x = Placeholder() {dtype=float32, shape=[]}
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
early = ReadVariableOp(v) {dtype=float32}
assign = AssignVariableOp(v, x) {dtype=float32}
late = ReadVariableOp(v, ^assign) {dtype=float32}
value = Neg(late)
"""
SQUARED = NEGATED.replace("Neg", "Square")

# equal graphs, whose runs read and write in different orders
READS_FIRST = f"{NEGATED}sum = AddV2(early, late)\n"
WRITES_FIRST = """
x = Placeholder() {dtype=float32, shape=[]}
v = VarHandleOp() {dtype=float32, shape=[], shared_name="v"}
assign = AssignVariableOp(v, x) {dtype=float32}
late = ReadVariableOp(v, ^assign) {dtype=float32}
value = Neg(late)
early = ReadVariableOp(v, ^x) {dtype=float32}
sum = AddV2(early, late)
"""
