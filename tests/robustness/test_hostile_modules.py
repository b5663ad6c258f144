"""StableHLO modules that damage, end, or block the process that reads or runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfgraph.cli import command_line as cli

pytest.importorskip("jax", reason="needs the extra xla")

FOLDER = Path(__file__).parents[2] / "fixtures" / "robustness" / "stablehlo"
_CODE = re.compile(r"\b(CFG\d+)\b")
# exit status and code of a run of one file of each kind
KINDS = [
    ("hlo_mhlo_python_callback", 4, "CFG701"),
    ("hlo_mhlo_lapack_overflow", 4, "CFG701"),
    ("hlo_ext_mhlo_custom_call", 4, "CFG701"),
    ("hlo_ext_stablehlo_custom_call", 4, "CFG701"),
    ("hlo_mhlo_bitcast", 5, "CFG715"),
    ("hlo_bytes_sig11_354", 5, "CFG715"),
    ("hlo_bytes_hang_631", 5, "CFG715"),
    ("hlo_call_Qr_noarg", 5, "CFG705"),
    ("hlo_call_ProductOfElementaryHouseholderReflectors_same", 5, "CFG705"),
    ("hlo_call_Sharding_noarg", 5, "CFG705"),
    ("hlo_call_xla.sdy.ShardingGroup_noarg", 5, "CFG705"),
    ("hlo_main_decl", 5, "CFG705"),
    ("hlo_overflow2", 5, "CFG705"),
    ("hlo_iota_overflow", 5, "CFG705"),
    ("hlo_out_dim_overflow", 5, "CFG705"),
    ("hlo_pad_neg_huge", 5, "CFG705"),
]


@pytest.mark.parametrize(("name", "status", "code"), KINDS)
def test_a_run_of_a_hostile_module_is_an_error_with_a_code(
    name: str, status: int, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["run", str(FOLDER / f"{name}.pb"), "--fetch", "y"]) == status
    assert _CODE.findall(capfd.readouterr().err)[:1] == [code]
