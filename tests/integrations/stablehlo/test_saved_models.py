"""SavedModels that jax2tf wrote compute what TensorFlow computes, as they are and after passes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cfgraph
from cfgraph.errors import CfgraphError, ExecutionError, Unsupported, install_hint
from cfgraph.ir.attrs import Func
from cfgraph.ir.graph import Graph
from tests.integrations.stablehlo.programs import NAMES, recorded

pytest.importorskip("jax", reason="needs the extra xla")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of the SavedModels, and the recorded runs of each."""
    folder = tmp_path_factory.mktemp("stablehlo")
    return folder, recorded(folder)


def outputs_of(graph: Graph) -> list[str]:
    """The outputs of the default signature, out0 first."""
    types = graph["StatefulPartitionedCall"].attr("Tout")
    return [f"StatefulPartitionedCall:{port}" for port in range(len(types))]


def optimized(graph: Graph, fetches: list[str]) -> None:
    cfgraph.optimize(graph, fetches=fetches)


def clustered(graph: Graph, fetches: list[str]) -> None:
    cfgraph.lower(graph)
    cfgraph.cluster(graph, min_size=1, fetches=fetches)


def partitioned(graph: Graph, fetches: list[str]) -> None:
    cfgraph.lower(graph)
    cfgraph.place(graph, devices=["cpu:0", "cpu:1"], seed=3)
    cfgraph.partition(graph)


def functionalized(graph: Graph, fetches: list[str]) -> None:
    cfgraph.lower(graph)
    cfgraph.functionalize(graph, fetches)


PASSES: dict[str, Callable[[Graph, list[str]], Any]] = {
    "none": lambda graph, fetches: None,
    "lower": lambda graph, fetches: cfgraph.lower(graph),
    "optimize": optimized,
    "cluster": clustered,
    "partition": partitioned,
    "freeze": lambda graph, fetches: cfgraph.freeze(graph, outputs=fetches),
    "functionalize": functionalized,
    "extract": lambda graph, fetches: cfgraph.extract(graph, outputs=fetches),
}


@pytest.mark.smallest
@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_tensorflow(models: Any, name: str) -> None:
    folder, runs = models
    for label, transform in PASSES.items():
        graph = cfgraph.load(folder / name)
        fetches = outputs_of(graph)
        transform(graph, fetches)
        assert_recorded(cfgraph.Session(graph), fetches, runs[name], label)
    text = cfgraph.loads(cfgraph.dumps(graph, "graph"), "graph")
    for engine in ("tokens", "compiled", "xla"):
        assert_recorded(cfgraph.Session(text, engine=engine), fetches, runs[name], engine)


def assert_recorded(session: cfgraph.Session, fetches: list[str], runs: Any, label: str) -> None:
    """Compare the fetches with TensorFlow's values."""
    for run in runs:
        feeds = {f"serving_default_{key}:0": value for key, value in run["feeds"].items()}
        values = session.run(fetches, feeds)
        for value, (_, expected) in zip(values, sorted(run["outputs"].items()), strict=True):
            assert value.dtype == expected.dtype, label
            np.testing.assert_allclose(value, expected, rtol=2e-6, atol=1e-6, err_msg=label)


def module_graph(folder: Path, name: str, **attrs: Any) -> tuple[Graph, list[str], list[str]]:
    """A graph of one module with other attributes; the names of its inputs and outputs."""
    graph = cfgraph.load(folder / name)
    cfgraph.lower(graph)
    (node,) = (node for node in graph if node.op == "XlaCallModule")
    node.attrs.update(attrs)
    inputs = [f"{source.name}" for source in node.inputs]
    return graph, inputs, [f"{node.name}:{port}" for port in range(len(node.attrs["Tout"]))]


@pytest.mark.parametrize(
    ("attrs", "error", "message"),
    [
        (
            {"platforms": (b"CUDA", b"TPU")},
            ExecutionError,
            "the platform CPU is not among those of the module: CUDA, TPU",
        ),
        ({"version": 4}, Unsupported, "version 4 of XlaCallModule is not supported"),
        ({"version": 11}, Unsupported, "version 11 of XlaCallModule is not supported"),
        (
            {"function_list": (Func("f"), Func("g"))},
            Unsupported,
            "the module of XlaCallModule calls functions of the graph: 'f', 'g'",
        ),
        (
            {"has_token_input_output": True},
            Unsupported,
            "XlaCallModule with has_token_input_output is not supported",
        ),
        ({"module": b"ML\xefR"}, ExecutionError, "the module is not a portable artifact"),
    ],
)
def test_what_is_not_supported_is_named(
    models: Any, attrs: dict[str, Any], error: type[CfgraphError], message: str
) -> None:
    folder, runs = models
    graph, inputs, outputs = module_graph(folder, "cond", **attrs)
    feeds = dict(zip(inputs, runs["cond"][0]["feeds"].values(), strict=True))
    with pytest.raises(error, match="^" + re.escape(message)) as caught:
        cfgraph.Session(graph).run(outputs, feeds)
    assert caught.value.node is not None


def test_a_disabled_platform_check_runs_a_module_for_others(models: Any) -> None:
    folder, runs = models
    attrs = {"platforms": (b"CUDA",), "disabled_checks": (b"platform",), "function_list": ()}
    graph, inputs, outputs = module_graph(folder, "cond", **attrs)
    (run, *_) = runs["cond"]
    feeds = dict(zip(inputs, run["feeds"].values(), strict=True))
    (value,) = cfgraph.Session(graph).run(outputs, feeds)
    np.testing.assert_array_equal(value, run["outputs"]["out0"])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cond", np.ones(4, np.float32), "input 0 is float32[4], the module expects tensor<3xf32>"),
        (
            "batch",
            np.ones((2, 4), np.float32),
            "input 0 is float32[2, 4], the module expects tensor<?x3xf32>",
        ),
    ],
)
def test_an_input_of_another_shape_is_rejected(
    models: Any, name: str, value: Any, message: str
) -> None:
    graph, _, _ = module_graph(models[0], name)
    fed = cfgraph.Graph()
    module = next(node for node in graph if node.op == "XlaCallModule")
    source = fed.add("Placeholder", name="x", dtype=module.attrs["Tin"][0])
    node = fed.add("XlaCallModule", source, name="module", attrs=module.attrs)
    with pytest.raises(ExecutionError, match=re.escape(message)):
        cfgraph.Session(fed).run([f"{node.name}:0"], {"x:0": value})


def test_without_jax_a_run_names_the_extra(models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, runs = models
    graph, inputs, outputs = module_graph(folder, "cond")
    monkeypatch.setitem(sys.modules, "jax", None)
    feeds = dict(zip(inputs, runs["cond"][0]["feeds"].values(), strict=True))
    with pytest.raises(Unsupported, match="jax is not installed") as caught:
        cfgraph.Session(graph).run(outputs, feeds)
    assert (caught.value.hint, caught.value.exit_code) == (install_hint("xla"), 4)
