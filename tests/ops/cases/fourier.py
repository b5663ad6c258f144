"""Fourier transforms: even and odd sizes, lengths that cut, nothing, and too little."""

import numpy as np

from tests.ops.harness import case

RANDOM = np.random.default_rng(3)
REAL = RANDOM.normal(size=(2, 3, 4, 5))
WHOLE = REAL + 1j * RANDOM.normal(size=REAL.shape)
CASES = []
for dims in (1, 2, 3):
    name = "FFT" if dims == 1 else f"FFT{dims}D"
    ends = REAL.shape[-dims:]
    lengths = [ends, (2,) * dims, (3,) * dims, (*ends[:-1], 4)]
    for real, both in (("float32", "complex64"), ("float64", "complex128")):
        more = {"rtol": 1e-4, "atol": 1e-5} if real == "float32" else {}
        types = {"Treal": np.dtype(real), "Tcomplex": np.dtype(both)}
        x, z = REAL.astype(real), WHOLE.astype(both)
        nothing = z[:0]
        for op in (name, "I" + name):
            CASES += [case(op, [z], {"Tcomplex": np.dtype(both)}, **more)]
            CASES += [case(op, [nothing], {"Tcomplex": np.dtype(both)}, **more)]
        for length in lengths:
            size = np.array(length, "int32")
            CASES.append(case("R" + name, [x, size], types, **more))
            CASES.append(case("IR" + name, [z, size], types, **more))
        CASES.append(case("R" + name, [x[:0], size], types, **more))
    for sizes in {(0,) * dims, (0,) * (dims - 1) + (3 * (dims > 1),)}:
        nothing = np.zeros((2, *sizes), "float32")
        CASES.append(case("R" + name, [nothing, np.zeros(dims, "int32")]))
    flat = np.ones((2,) * (dims - 1))
    CASES.append(case(name, [flat.astype("complex64")], error=True))
    CASES.append(case("R" + name, [x, np.full(dims, 9, "int32")], types, error=True))
    CASES.append(case("R" + name, [x, np.full(dims + 1, 2, "int32")], types, error=True))
OUR_GRADIENT = {
    **dict.fromkeys(
        ("RFFT", "RFFT2D", "IRFFT", "IRFFT2D"),
        "TensorFlow's fails where the length cuts a part of the input off, as in all cases here",
    ),
    **dict.fromkeys(("RFFT3D", "IRFFT3D"), "TensorFlow has none"),
}
