"""A report of a fault of TensorFlow: the reduced graph, a script that shows it, and an issue."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.analysis.feeds_and_fetches import declared_type
from cfgraph.compare.differences import RunDiff
from cfgraph.compare.tensorflow.culprit import Culprit, FormedCluster, agreeing_modes, find_culprit
from cfgraph.compare.tensorflow.mode_oracle import ModeOracle
from cfgraph.compare.tensorflow.modes import Mode
from cfgraph.console.doctor import versions
from cfgraph.console.values import summary_text, value_text
from cfgraph.errors import CfgraphError
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.files import dumps, pbtxt_lines
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.passes.lower.lower import lower

_MAX_ITEMS: Final = 8
# of a script that shows a hang
_ALARM_SECONDS: Final = 60
_WITHOUT_REWRITES: Final = (
    'tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})'
)


@dataclass(frozen=True, slots=True)
class ModeFault:
    """A fault of a mode in a graph: how it differs, and the version of TensorFlow."""

    oracle: ModeOracle
    graph: Graph
    delta: RunDiff
    version: str

    @property
    def mode(self) -> Mode:
        """The mode that is wrong."""
        return self.oracle.mode

    @property
    def title(self) -> str:
        """The fault in one line."""
        if self.delta.failure is not None:
            return self.delta.failure.message
        gap = self.delta.gaps[0]
        return f"TensorFlow ({self.mode.name}) returns a wrong {gap.what}: {gap.message}"


def write_report(fault: ModeFault, folder: str) -> list[str]:
    """Write the files of a report into a folder; returns their paths."""
    fetches = [gap.what for gap in fault.delta.gaps] or fault.delta.fetches
    culprit = find_culprit(fault.oracle, fault.graph, fetches, fault.delta.inputs)
    contents = {
        "repro.py": repro_script(fault).encode(),
        "graph.pb": dumps(fault.graph),
        "graph.graph": dumps(fault.graph, "graph"),
        "issue.md": issue_text(fault, culprit).encode(),
    }
    if culprit.graph is not None:
        contents["rewritten.graph"] = dumps(culprit.graph, "graph")
    paths = {name: str(Path(folder, name)) for name in contents}
    with StagedFiles() as files:
        files.make_folder(folder)
        for name, data in contents.items():
            with files.open(paths[name]) as file:
                file.write(data)
    return list(paths.values())


def repro_script(fault: ModeFault) -> str:
    """Return a script that shows a fault with TensorFlow alone."""
    delta, mode = fault.delta, fault.mode
    expected = {gap.what: gap.before for gap in delta.gaps}
    names = list(expected) or list(delta.fetches)
    shapes = {
        name: declared_type(fault.graph, fault.graph.tensor(name))[1].dims for name in delta.inputs
    }
    hang = delta.failure is not None and " hangs" in delta.failure.message
    lines = [f'"""{fault.title}, in TensorFlow {fault.version}."""', "", "import os"]
    lines += ["import signal"] * hang
    lines += ["", f'os.environ["TF_XLA_FLAGS"] = "{mode.flags}"'] if mode.flags else [""]
    lines += [f"signal.alarm({_ALARM_SECONDS})  # it hangs"] * hang
    lines += [
        "import numpy as np",
        "import tensorflow as tf",
        "from google.protobuf import text_format",
    ]
    lines += ["", *([] if mode.rewrites else [_WITHOUT_REWRITES])]
    lines += ['GRAPH = r"""', *pbtxt_lines(fault.graph), '"""']
    lines += ["FEEDS = {", *(f"    {n!r}: {_array_text(v)}," for n, v in delta.inputs.items()), "}"]
    lines += [f"SHAPES = {shapes!r}"]
    lines += ["EXPECTED = {"]
    lines += [f"    {n!r}: {_array_text(expected.get(n))}," for n in names]
    lines += ["}", "graph_def = text_format.Parse(GRAPH, tf.compat.v1.GraphDef())"]
    lines += [
        "",
        "",
        "def body(*args):",
        "    fed = dict(zip(FEEDS, args))",
        '    return tf.import_graph_def(graph_def, fed, list(EXPECTED), name="")',
        "",
        "",
        "signature = [tf.TensorSpec(SHAPES[name], value.dtype) for name, value in FEEDS.items()]",
        "function = tf.compat.v1.wrap_function(body, signature)",
        *_CALLS.get(mode.name, ["actual = function(*map(tf.constant, FEEDS.values()))"]),
        "for (name, value), result in zip(EXPECTED.items(), actual):",
        "    print(name, np.asarray(result).tolist())",
        "    if value is not None:",
        "        np.testing.assert_allclose(result, value, rtol=1e-4, err_msg=name, strict=True)",
    ]
    return "\n".join(lines) + "\n"


_CALLS: Final = {
    "jit": [
        "compiled = tf.function(lambda *args: function(*args), jit_compile=True)",
        "actual = compiled(*map(tf.constant, FEEDS.values()))",
    ],
    "lite": [
        "converter = tf.lite.TFLiteConverter.from_concrete_functions([function], function)",
        "interpreter = tf.lite.Interpreter(model_content=converter.convert())",
        "interpreter.allocate_tensors()",
        "for item, value in zip(interpreter.get_input_details(), FEEDS.values()):",
        '    interpreter.set_tensor(item["index"], value)',
        "interpreter.invoke()",
        'actual = [interpreter.get_tensor(i["index"]) for i in interpreter.get_output_details()]',
    ],
}


def _array_text(value: Any) -> str:
    """Return an expression for an array."""
    if value is None:
        return "None"
    array = np.asarray(value)
    text = repr(array.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
    dtype = "object" if array.dtype == object else str(array.dtype)
    shaped = f".reshape({list(array.shape)})" if not array.size else ""
    return f"np.array({text}, {dtype!r}){shaped}"


def issue_text(fault: ModeFault, culprit: Culprit) -> str:
    """Return the text of an issue."""
    lines = [f"# {fault.title}", "", *_versions(fault), "", "## Graph", ""]
    lines += ["```", dumps(fault.graph, "graph").decode().rstrip(), "```", ""]
    lines += ["## Expected and returned", "", *_values(fault), "", *_modes(fault), ""]
    lines += ["## Why", "", *_liveness(fault, culprit), "", *_first_node(fault)]
    lines += [*_culprit_lines(fault.mode, culprit)]
    lines += ["", "## Commands", "", "```", *_commands(fault), "```"]
    return "\n".join(lines) + "\n"


def _versions(fault: ModeFault) -> Iterator[str]:
    yield f"- TensorFlow {fault.version}, mode `{fault.mode.name}`: {fault.mode.description}"
    if fault.mode.flags:
        yield f'- `TF_XLA_FLAGS="{fault.mode.flags}"`'
    known = versions()
    yield f"- cfgraph {known['cfgraph']}, Python {known['python']}, {known['platform']}"


def _values(fault: ModeFault) -> Iterator[str]:
    for name, value in fault.delta.inputs.items():
        yield f"- fed `{name}`: {summary_text(value)}"
    for gap in fault.delta.gaps:
        expected = "dead" if gap.before is None else summary_text(gap.before)
        returned = "no value" if gap.after is None else summary_text(gap.after)
        yield f"- `{gap.what}`: expected {expected}, returned {returned}"
    if fault.delta.failure is not None:
        yield f"- {fault.delta.failure.message}"
        for line in (fault.delta.failure.hint or "").splitlines():
            yield f"  - `{line}`"


def _modes(fault: ModeFault) -> Iterator[str]:
    yield "| mode | this graph |"
    yield "| --- | --- |"
    for name, verdict in agreeing_modes(fault.oracle, fault.graph).items():
        yield f"| `{name}` | {verdict} |"


def _liveness(fault: ModeFault, culprit: Culprit) -> Iterator[str]:
    lowered = copy_graph(fault.graph)
    try:
        lower(lowered)
        analysis = deadness(lowered)
        for name in [gap.what for gap in fault.delta.gaps] or fault.delta.fetches:
            condition = analysis.describe(analysis.of(lowered.tensor(name)))
            yield f"- In the graph, `{name}` {condition}."
    except CfgraphError as error:
        yield f"- The liveness of the graph is not known: {error.message}"
    for name, condition in (culprit.conditions or {}).items():
        yield f"- In `rewritten.graph`, which TensorFlow runs instead, `{name}` {condition}."


def _first_node(fault: ModeFault) -> Iterator[str]:
    first = fault.delta.first
    if first is None:
        return
    yield f"- First node that differs: `{first.node}` ({first.op}), {first.message}."
    for name, function in fault.graph.functions.items():
        ops = dict.fromkeys(node.op for node in function.definition.nodes)
        yield f"- Ops of `{name}`: {', '.join(ops)}."


def _culprit_lines(mode: Mode, culprit: Culprit) -> Iterator[str]:
    if culprit.repairing:
        names = ", ".join(f"`{name}`" for name in culprit.repairing)
        yield f"- Right if one of these rewrites of Grappler is disabled: {names}."
    elif mode.rewrites:
        yield "- Disabling single rewrites of Grappler changes nothing."
    for finding in culprit.findings:
        yield f"- `cfgraph check rewritten.graph`: {finding.code}, node `{finding.node}`:"
        yield f"  {finding.message}"
    for line in culprit.remarks:
        yield f"- TensorFlow prints: `{line}`"
    for cluster in culprit.clusters:
        yield from _cluster_lines(cluster)
    if not culprit.clusters and mode.flags:
        yield "- XLA formed no cluster."
    if mode.name == "jit":
        yield "- The whole function is one cluster."


def _cluster_lines(cluster: FormedCluster) -> Iterator[str]:
    count = len(cluster.members)
    yield f"- `{cluster.name}`: {count} nodes: {_names(cluster.members)}"
    for name, condition in list(cluster.may_be_dead.items())[:_MAX_ITEMS]:
        yield f"  - its input `{name}` may be dead: live if {condition}"
    for kind, names in (("Merge", cluster.merges), ("Switch", cluster.switches)):
        if names:
            yield f"  - {kind} inside: {_names(names)}"


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MAX_ITEMS} more" * (len(names) > _MAX_ITEMS)
    return ", ".join(f"`{name}`" for name in names[:_MAX_ITEMS]) + more


def _commands(fault: ModeFault) -> Iterator[str]:
    feeds = feed_words(fault.delta.inputs)
    against = f" --against {fault.oracle.against.text}" if fault.oracle.against else ""
    yield "python repro.py"
    yield f"cfgraph diff graph.pb --run --with {fault.mode.text}{against}{feeds}"


def feed_words(inputs: Mapping[str, Any]) -> str:
    """Return the options that feed values."""
    texts = (f"{name.removesuffix(':0')}={value_text(value)}" for name, value in inputs.items())
    return "".join(f" --feed {shlex.quote(text)}" for text in texts)
