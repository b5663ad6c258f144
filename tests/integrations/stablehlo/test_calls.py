"""Modules whose calls could damage the process are rejected; those that jax writes are run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfgraph.errors import CfgraphError, ExecutionError
from cfgraph.integrations.stablehlo.module_process import module_bodies, run_module
from cfgraph.limits import limited
from cfgraph.ops.opdef.stablehlo_modules import ModuleCall

pytest.importorskip("jax", reason="needs the extra xla")

INPUT = np.diag(np.arange(1, 5)).astype(np.float32)
CALL_SELF = """
  %r = func.call @f(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %r : tensor<4x4xf32> }
  func.func private @f(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %r = func.call @f(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %r : tensor<4x4xf32>"""

# each function calls the one before it twice
CALLS_OF_CALLS = "\n".join(
    [
        "%r = func.call @f30(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>",
        "return %r : tensor<4x4xf32> }",
        "func.func private @f0(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {",
        "return %a : tensor<4x4xf32>",
        *(
            f"""}} func.func private @f{n}(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {{
            %b = func.call @f{n - 1}(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
            %r = func.call @f{n - 1}(%b) : (tensor<4x4xf32>) -> tensor<4x4xf32>
            return %r : tensor<4x4xf32>"""
            for n in range(1, 31)
        ),
    ]
)
CALL_UNKNOWN = """
  %r = stablehlo.custom_call @Sharding(%a) {called_computations = [@absent]}
    : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %r : tensor<4x4xf32>"""


def custom_call(target: str, types: str, options: str, arguments: str = "%a") -> str:
    """A module body that returns its input after a call."""
    attributes = (
        f"{{api_version = 4 : i32, has_side_effect = true, backend_config = {{{options}}}}}"
    )
    count = f":{types.count('tensor') - arguments.count('%')}"
    call = f"%r{count} = stablehlo.custom_call @{target}({arguments}) {attributes} : {types}"
    return f"{call}\n  return %a : tensor<4x4xf32>"


def artifact(body: str) -> bytes:
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    head = "func.func public @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32>"
    with mlir.make_ir_context():
        module = ir.Module.parse(f"module {{ {head} {{\n  {body} }} }}")
        data: bytes = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
        return data


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            custom_call(
                "xla_ffi_python_cpu_callback",
                "(tensor<4x4xf32>) -> tensor<4x4xf32>",
                "index = 99 : ui64",
            ),
            "calls the routine 'xla_ffi_python_cpu_callback'",
        ),
        (
            custom_call(
                "lapack_sgetrf_ffi",
                "(tensor<4x4xf32>) -> (tensor<1x1xf32>, tensor<1xi32>, tensor<i32>)",
                "",
            ),
            "the call of 'lapack_sgetrf_ffi' has shapes that do not fit: tensor<4x4xf32>, tensor<1",
        ),
        (
            custom_call(
                "lapack_sgetrf_ffi", "(tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xi32>)", ""
            ),
            "has another form than that of jax",
        ),
        (CALL_SELF, "a function of the module calls itself: "),
        (CALL_UNKNOWN, "calls a function that it does not have: 'absent'"),
        (CALLS_OF_CALLS, "has more than 2^20 operations in all calls of 'f18'"),
    ],
)
def test_a_call_that_could_damage_the_process_is_rejected(body: str, message: str) -> None:
    call = ModuleCall(artifact(body), 9, ("CPU",), output_types=(INPUT.dtype,))
    with pytest.raises(CfgraphError) as caught:
        run_module(call, [INPUT])
    assert message in caught.value.message


def exported(function: Callable[..., Any], *like: Any) -> tuple[bytes, ModuleCall]:
    import jax

    arguments = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in like or [INPUT]]
    made = jax.export.export(jax.jit(function))(*arguments)
    types = tuple(item.dtype for item in made.out_avals)
    version = made.calling_convention_version
    data = bytes(made.mlir_module_serialized)
    return data, ModuleCall(data, version, ("CPU",), output_types=types)


@pytest.mark.parametrize("size", [4, 1 << 18])
def test_an_argument_that_has_changed_is_read_again(size: int) -> None:
    import jax.export  # noqa: F401 - a module of its own

    value = np.zeros(size, np.float32)
    _, call = exported(lambda x: (x + 1, x[-1]), value)
    kept = []
    for number in range(3):
        value[-1] = number
        whole, last = run_module(call, [value])
        assert (whole[0], whole[-1], last) == (1, number + 1, number)
        kept.append(whole)
    assert [array[-1] for array in kept] == [1, 2, 3], "results stay"
    value.flags.writeable = False
    for _ in range(2):
        assert run_module(call, [value])[1] == 2


_MANY = """
import resource
import jax.export
import numpy as np
from cfgraph.integrations.stablehlo.module_process import run_module
from tests.integrations.stablehlo.test_calls import exported

values = np.ones((100, 1 << 14), np.float32)
_, call = exported(lambda *x: sum(x), *values)
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
assert [run_module(call, list(values * n))[0][-1] for n in range(3)] == [0, 100, 200]
"""


@pytest.mark.slow
def test_many_large_arguments_need_few_open_files(root: Path) -> None:
    subprocess.run([sys.executable, "-c", _MANY], check=True, cwd=root, timeout=120)


def test_a_result_beyond_the_memory_limit_is_rejected() -> None:
    import jax.export  # noqa: F401 - a module of its own
    import jax.numpy as jnp

    _, call = exported(lambda x: jnp.broadcast_to(x[0, 0], (1 << 20, 1)))
    with limited(max_memory=1 << 20), pytest.raises(ExecutionError, match="limit is 1048576"):
        run_module(call, [INPUT])
    assert run_module(call, [INPUT])[0].shape == (1 << 20, 1)


def test_the_calls_of_jax_are_run() -> None:
    import jax
    import jax.export
    import jax.numpy as jnp

    def factors(x: Any) -> Any:
        wide = x[:3]
        eigenvalues, inverse = jnp.linalg.eigvals(x), jnp.linalg.inv(x)
        right = jax.lax.linalg.triangular_solve(x, wide, left_side=False)
        singular = [jnp.linalg.svd(y, full_matrices=full)[1] for y in (x, wide) for full in (0, 1)]
        largest = jax.lax.approx_max_k(x, 2), jax.lax.top_k(x, 2), jax.lax.erf(x)
        return (
            largest,
            eigenvalues,
            inverse,
            right,
            jnp.linalg.cholesky(x),
            jnp.linalg.qr(wide),
            singular,
        )

    data, call = exported(factors)
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        expected = jax.tree.leaves(factors(INPUT))
    for value, other in zip(run_module(call, [INPUT]), expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5)
    # also with constants of complex numbers
    assert module_bodies(data)[0].name == "main"


def nested_cases(depth: int) -> str:
    """A module body of conditionals, each in the only branch of the one before."""
    result = "(tensor<i32>) -> tensor<4x4xf32>"
    head = "%i = stablehlo.constant dense<0> : tensor<i32>\n"
    opened = "".join(f'%r{n} = "stablehlo.case"(%i) ({{\n' for n in range(depth))
    returned = "".join(
        f'"stablehlo.return"(%r{n + 1}) : (tensor<4x4xf32>) -> ()\n}}) : {result}\n'
        for n in reversed(range(depth - 1))
    )
    inner = f'"stablehlo.return"(%a) : (tensor<4x4xf32>) -> ()\n}}) : {result}\n'
    return f"{head}{opened}{inner}{returned}return %r0 : tensor<4x4xf32>"


def chained_calls(depth: int) -> str:
    """A module body that calls a function, which calls the next one."""
    types = "(tensor<4x4xf32>) -> tensor<4x4xf32>"
    texts = [
        f"%r = func.call @f{n}(%a) : {types}\n return %r : tensor<4x4xf32> }}\n"
        f"func.func private @f{n}(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {{"
        for n in range(depth)
    ]
    return "\n".join([*texts, "return %a : tensor<4x4xf32>"])


@pytest.mark.parametrize("body", [nested_cases, chained_calls])
def test_levels_beyond_the_limit_are_rejected(body: Callable[[int], str]) -> None:
    call = ModuleCall(artifact(body(60)), 9, output_types=(np.float32,))
    (value,) = run_module(call, [INPUT])
    np.testing.assert_array_equal(value, INPUT)
    with pytest.raises(CfgraphError, match="more than 64 levels of"):
        run_module(ModuleCall(artifact(body(500)), 9), [INPUT])


def test_a_reader_rejects_regions_beyond_the_limit() -> None:
    with pytest.raises(CfgraphError, match="more than 64 levels of regions"):
        module_bodies(artifact(nested_cases(1000)))
