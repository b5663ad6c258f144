"""The `.graph` text format: one line per node, functions in blocks.

    versions producer=1882
    x = Placeholder() {dtype=float32, shape=[2,?]}
    z = Mul(x, y:1, ^c) {T=float32} @"/device:CPU:0"
    function double(x: float32) -> (z: float32) {
      two = Const() {dtype=float32, value=float32[]:2.0}
      mul = Mul(x, two:output:0) {T=float32}
      return z = mul:z:0
    }

A full type may follow a node (`type product[tensor[float]]`).

The format is lossless. Data without a text form is written in base64: `raw"..."`. Nodes may
appear in any order, and `#` starts a comment. Type and count attributes that follow from the inputs
of a node may be omitted if the op is known; a node that really lacks them is marked `exact`.
"""
