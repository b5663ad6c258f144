"""Recurrent cells and sequences as single ops, and their gradients."""

import numpy as np

from tests.ops.harness import case

F32, F16, I64 = np.float32, np.float16, np.int64
random = np.random.default_rng(4)
STEPS, BATCH, INPUTS, UNITS = 4, 2, 3, 5
NEAR = {"rtol": 1e-4, "atol": 1e-5}


def some(*shape, dtype=F32):
    return (random.standard_normal(shape) * 0.7).astype(dtype)


def state(*lead, dtype=F32):
    """x, cs_prev, h_prev, w, wci, wcf, wco, b."""
    shapes = [
        (*lead, BATCH, INPUTS),
        (BATCH, UNITS),
        (BATCH, UNITS),
        (INPUTS + UNITS, 4 * UNITS),
        *[(UNITS,)] * 3,
        (4 * UNITS,),
    ]
    return [some(*shape, dtype=dtype) for shape in shapes]


def values(count, *lead):
    """Outputs of the forward op for its gradient: numbers between -1 and 1."""
    return [np.tanh(some(*lead, BATCH, UNITS)) for _ in range(count)]


def gru():
    """x, h_prev, w_ru, w_c, b_ru, b_c."""
    shapes = [
        (BATCH, INPUTS),
        (BATCH, UNITS),
        (INPUTS + UNITS, 2 * UNITS),
        (INPUTS + UNITS, UNITS),
        (2 * UNITS,),
        (UNITS,),
    ]
    return [some(*shape) for shape in shapes]


def begun(ours, theirs, inputs):
    """Equal as far as the sequences go; beyond, TensorFlow sets only the state."""
    steps = int(inputs[0])
    for slot, (mine, wanted) in enumerate(zip(ours, theirs, strict=True)):
        end = STEPS if slot in (1, 6) else steps
        assert not mine[steps:].any()
        np.testing.assert_allclose(mine[:end], wanted[:end], 1e-4, 1e-5)


WRONG = state()
WRONG[3] = some(INPUTS, 4 * UNITS)
UNUSED = [*state()[:4], some(UNITS + 1), some(1), some(0), some(4 * UNITS)]
EMPTY = [some(2, INPUTS), some(2, 0), some(2, 0), some(INPUTS, 0), *UNUSED[4:7], some(0)]
CASES = [
    *(
        case("LSTMBlockCell", state(), {"use_peephole": p, **more}, **NEAR)
        for p in (False, True)
        for more in ({}, {"forget_bias": 0.5, "cell_clip": 0.3}, {"cell_clip": -1.0})
    ),
    case("LSTMBlockCell", state(dtype=F16), atol=1e-2),
    case("LSTMBlockCell", WRONG, error=True),
    case("LSTMBlockCell", UNUSED, **NEAR),
    case("LSTMBlockCell", EMPTY, error=True),
    case("LSTMBlockCell", [*state()[:4], some(), *state()[5:]], error=True),
    case("BlockLSTM", [I64(STEPS), *state(STEPS)[:4], *UNUSED[4:]], error=True),
    *(
        case(
            "LSTMBlockCellGrad",
            [*state(), *values(6), some(BATCH, UNITS), some(BATCH, UNITS)],
            {"use_peephole": p},
            **NEAR,
        )
        for p in (False, True)
    ),
    *(
        case(op, [I64(n), *state(STEPS)], {"use_peephole": p, **more}, compare=begun)
        for op in ("BlockLSTM", "BlockLSTMV2")
        for p in (False, True)
        for n, more in ((STEPS, {}), (2, {}), (STEPS, {"cell_clip": 0.3}), (0, {}))
    ),
    case("BlockLSTM", [I64(STEPS), *state(STEPS)], {"forget_bias": 0.25}, **NEAR),
    *(
        case(
            op,
            [
                I64(n),
                *state(STEPS),
                *values(7, STEPS),
                some(STEPS, BATCH, UNITS),
                some(STEPS, BATCH, UNITS),
            ],
            {"use_peephole": p},
            **NEAR,
        )
        for op in ("BlockLSTMGrad", "BlockLSTMGradV2")
        for p in (False, True)
        for n in (STEPS, 2)
    ),
    case("BlockLSTM", [I64(STEPS), *state()], error=True),
    case("GRUBlockCell", gru(), **NEAR),
    case("GRUBlockCellGrad", [*gru(), *values(4)], **NEAR),
    case("GRUBlockCell", [*gru()[:5], some(UNITS + 1)], error=True),
]
CELLS = ("LSTMBlockCell", "BlockLSTM", "BlockLSTMV2", "GRUBlockCell")
RESERVED = dict.fromkeys(CELLS[:3], (0, 2, 3, 4, 5)) | {"GRUBlockCell": (0, 1, 2)}
SMOOTH = dict.fromkeys(CELLS[:3], (-0.1, 0.1))  # where nothing is clipped, which no gradient sees
OUR_GRADIENT = dict.fromkeys(("LSTMBlockCell", "GRUBlockCell"), "TensorFlow has none")
OUR_GRADIENT |= {"BlockLSTMV2": "TensorFlow takes the gates in the order of the first version"}
BACK = ("LSTMBlockCellGrad", "BlockLSTMGrad", "BlockLSTMGradV2", "GRUBlockCellGrad")
NO_GRADIENT = dict.fromkeys(BACK, "as in TensorFlow")
NO_SECOND = dict.fromkeys(CELLS, "their gradients have none")
