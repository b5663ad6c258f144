"""The table of converters is what was measured, and measuring gives it again."""

from __future__ import annotations

import os
import time

import pytest

import cfgraph
from benchmarks.converters.conversion import isolated
from benchmarks.converters.graphs import EXAMPLES, build
from benchmarks.converters.table import PAGE, converted, measure, page, recorded, shortened
from cfgraph.integrations.converters.refusals import find_converter, judged_nodes

# the others are measured in the sweep
USUAL = ("three_way_merge", "map_fn", "training")


def test_the_table_is_what_was_measured() -> None:
    results = recorded()
    text = PAGE.read_text(encoding="utf-8")
    assert results.keys() == EXAMPLES.keys()
    assert page(text, results) == text
    mended = [
        name
        for name, verdicts in results.items()
        for converter in ("tf2onnx", "lite")
        if verdicts[f"{converter} before"] != "agrees" == verdicts[f"{converter} after"]
    ]
    assert len({*mended}) >= 3


def test_a_message_is_shortened_to_its_telling_part() -> None:
    text = "refuses: ConverterError <unknown>:0: error: 'tf.StackV2' op is neither a custom op"
    assert shortened(f"{text} nor a flex op\nnote: more").endswith(
        "refuses: 'tf.StackV2' op is neither a custom op nor a flex op"
    )
    assert shortened("agrees") == "agrees"
    assert shortened(f"refuses: {'word ' * 40}").endswith(" …")


@pytest.mark.interop
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in EXAMPLES],
)
def test_a_graph_converts_as_the_table_says(name: str) -> None:
    for module in ("tensorflow", "tf2onnx", "onnxruntime"):
        pytest.importorskip(module, reason="needs the extra `converters`")
    measured, wanted = measure(name), recorded()[name]
    # iterates over sets of objects: what it says to a graph with cycles differs from run to run
    del measured["tf2onnx before"], wanted["tf2onnx before"]
    assert measured == wanted


@pytest.mark.slow
def test_a_process_that_ends_or_hangs_is_an_answer() -> None:
    with pytest.raises(RuntimeError, match="ended with status 3"):
        isolated(os._exit, 3)
    with pytest.raises(TimeoutError, match=r"no answer in 0\.5 s"):
        isolated(time.sleep, 60, seconds=0.5)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        isolated(divmod, 1, 0)


@pytest.mark.interop
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in EXAMPLES],
)
def test_convert_check_predicts_the_table(name: str) -> None:
    pytest.importorskip("tensorflow")
    example = isolated(build, name)
    for stage, data in (("before", example.data), ("after", converted(example)[0])):
        graph = cfgraph.loads(data)
        outputs = [graph.tensor(tensor).node for tensor in example.expected]
        for target, converter in (("lite", "lite"), ("onnx", "tf2onnx")):
            found = judged_nodes(graph, outputs, find_converter(target), frozen=False)
            agrees = recorded()[name][f"{converter} {stage}"] == "agrees"
            assert not (agrees and any(item.verdict == "refused" for item in found))
            assert agrees or found
