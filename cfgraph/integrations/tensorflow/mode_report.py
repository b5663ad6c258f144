"""A report of a fault of TensorFlow: the reduced graph, a script that shows it, and an issue."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cfgraph.analysis.deadness.deadness import deadness
from cfgraph.comparison.differences import RunDiff
from cfgraph.console.installation.doctor import versions
from cfgraph.console.values import summary_text, value_text
from cfgraph.errors import CfgraphError
from cfgraph.integrations.tensorflow.culprit import (
    AGREES,
    Culprit,
    FormedCluster,
    agreeing_modes,
    find_culprit,
    with_sides,
)
from cfgraph.integrations.tensorflow.mode_oracle import ModeOracle, difference_kind
from cfgraph.integrations.tensorflow.mode_script import repro_script
from cfgraph.integrations.tensorflow.modes import MODES, Mode
from cfgraph.integrations.tensorflow.processes import DEFAULT_SECONDS
from cfgraph.ir.file_io import StagedFiles
from cfgraph.ir.files import dumps
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph
from cfgraph.ir.printable import clean, clean_markdown
from cfgraph.limits import check_deadline
from cfgraph.passes.lowering import lower

_MAX_ITEMS: Final = 8
_MAX_VALUE: Final = 40
_BACKTICKS: Final = re.compile("`+")
_QUOTED: Final = re.compile("`([^`]+)`")
_DEAD: Final = "Dead: the tensor has no value, since an untaken branch of a Switch leads to it."


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
        message = self.with_sides(gap.message)
        return f"TensorFlow ({self.mode.name}) returns a wrong {gap.what}: {message}"

    def with_sides(self, message: str) -> str:
        """Return a message with the names of the sides for A and B."""
        reference = self.oracle.against.name if self.oracle.against else "cfgraph"
        return with_sides(message, reference, self.mode.name)


def simplest_fault(fault: ModeFault) -> ModeFault:
    """Return the fault in the first of `MODES` in which the graph differs in the same way."""
    for mode in MODES.values():
        if mode == fault.mode:
            break
        if mode == fault.oracle.against:
            continue
        check_deadline()
        oracle = replace(fault.oracle, mode=mode)
        try:
            delta = oracle.compare(fault.graph, locate=True)
        except CfgraphError:
            continue
        if difference_kind(delta, mode) == oracle.kind:
            return replace(fault, oracle=oracle, delta=delta)
    return fault


def write_report(fault: ModeFault, folder: str) -> list[str]:
    """Write the files of a report into a folder; returns their paths."""
    culprit = find_culprit(fault.oracle, fault.graph, fault.delta)
    script = repro_script(fault.oracle, fault.graph, fault.delta, fault.title)
    contents = {
        "repro.py": script.encode(),
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


def issue_text(fault: ModeFault, culprit: Culprit) -> str:
    """Return the text of an issue; text of the graph has no effect as Markdown."""
    lines = [f"# {_title(fault.title)}", "", *_versions(fault), "", "## Graph", ""]
    lines += [*_fenced(dumps(fault.graph, "graph").decode().rstrip()), ""]
    lines += ["## Expected and returned", "", *_values(fault), "", *_modes(fault), ""]
    lines += ["## Why", "", *_liveness(fault, culprit), "", *_first_node(fault)]
    lines += [*_culprit_lines(fault.mode, culprit)]
    lines += ["", "## Commands", "", *_fenced("\n".join(_commands(fault)))]
    return "\n".join(lines) + "\n"


def _title(text: str) -> str:
    """Return a text without escapes, which the title of an issue would show."""
    label, colon, message = text.partition(": ")
    return colon.join(
        part if clean_markdown(part) == part else _code_span(part) for part in (label, message)
    )


def _escape_markdown(text: str) -> str:
    """Escape Markdown in a line, except for names in backticks."""
    parts = enumerate(_QUOTED.split(text))
    return "".join(_code_span(part) if n % 2 else clean_markdown(part) for n, part in parts)


def _code_span(text: str) -> str:
    """Return a text as code in a line."""
    text = clean(text)
    fence = "`" * (1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    space = " " * (text[:1] == "`" or text[-1:] == "`")
    return f"{fence}{space}{text}{space}{fence}"


def _fenced(text: str) -> list[str]:
    """Return lines as a block of code."""
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return [fence, text, fence]


def _versions(fault: ModeFault) -> Iterator[str]:
    yield f"- TensorFlow {fault.version}, mode `{fault.mode.name}`: {fault.mode.description}"
    if fault.mode.flags:
        yield f'- `TF_XLA_FLAGS="{fault.mode.flags}"`'
    known = versions()
    yield f"- cfgraph {known.cfgraph}, Python {known.python}, {known.platform}"


def _values(fault: ModeFault) -> Iterator[str]:
    for name, value in fault.delta.inputs.items():
        yield f"- fed {_code_span(name)}: {_code_span(summary_text(value))}"
    for gap in fault.delta.gaps:
        expected = "dead" if gap.before is None else _code_span(summary_text(gap.before))
        returned = "no value" if gap.after is None else _code_span(summary_text(gap.after))
        yield f"- {_code_span(gap.what)}: expected {expected}, returned {returned}"
    if fault.delta.failure is not None:
        yield f"- {clean_markdown(fault.delta.failure.message)}"
        for line in (fault.delta.failure.hint or "").splitlines():
            yield f"  - {_code_span(line)}"


def _modes(fault: ModeFault) -> Iterator[str]:
    yield "| mode | this graph |"
    yield "| --- | --- |"
    verdicts = agreeing_modes(fault.oracle, fault.graph)
    for name, verdict in verdicts.items():
        result = _agreement(fault) if verdict == AGREES else clean_markdown(verdict)
        yield f"| `{name}` | {result} |"
    if any("dead" in verdict for verdict in verdicts.values()):
        yield from ("", _DEAD)


def _agreement(fault: ModeFault) -> str:
    """Return what the modes that agree return, if it is one short value of cfgraph."""
    if fault.oracle.against is None and len(fault.delta.gaps) == 1:
        (gap,) = fault.delta.gaps
        text = "" if gap.before is None else value_text(gap.before)
        if len(text) <= _MAX_VALUE and not set(text) & {*"\\|\n"}:
            return f"returns {_code_span(text)}, as cfgraph" if text else "dead, as in cfgraph"
    return AGREES


def _liveness(fault: ModeFault, culprit: Culprit) -> Iterator[str]:
    lowered = copy_graph(fault.graph)
    try:
        lower(lowered)
        analysis = deadness(lowered)
        for name in [gap.what for gap in fault.delta.gaps] or fault.delta.fetches:
            condition = analysis.describe(analysis.of_output(lowered.tensor(name)))
            yield f"- In the graph, {_code_span(name)} {_escape_markdown(condition)}."
    except CfgraphError as error:
        yield f"- The liveness of the graph is not known: {clean_markdown(error.message)}"
    for name, condition in (culprit.conditions or {}).items():
        yield (
            "- In `rewritten.graph`, which TensorFlow runs instead, "
            f"{_code_span(name)} {_escape_markdown(condition)}."
        )


def _first_node(fault: ModeFault) -> Iterator[str]:
    first = fault.delta.first
    if first is None:
        return
    node = f"{_code_span(first.node)} ({clean_markdown(first.op)})"
    yield f"- First node that differs: {node}, {clean_markdown(fault.with_sides(first.message))}."
    for name, function in fault.graph.functions.items():
        ops = dict.fromkeys(node.op for node in function.definition.nodes)
        yield f"- Ops of {_code_span(name)}: {clean_markdown(', '.join(ops))}."


def _culprit_lines(mode: Mode, culprit: Culprit) -> Iterator[str]:
    if culprit.repairing:
        names = ", ".join(f"`{name}`" for name in culprit.repairing)
        yield f"- Right if one of these rewrites of Grappler is disabled: {names}."
    elif mode.rewrites:
        yield "- Disabling single rewrites of Grappler changes nothing."
    for finding in culprit.findings:
        node = _code_span(finding.node or "")
        yield f"- `cfgraph check rewritten.graph`: {finding.code}, node {node}:"
        yield f"  {clean_markdown(finding.message)}"
    for line in culprit.remarks:
        yield f"- TensorFlow prints: {_code_span(line)}"
    for cluster in culprit.clusters:
        yield from _cluster_lines(cluster)
    if not culprit.clusters and mode.flags:
        yield "- XLA formed no cluster."
    if mode.name == "jit":
        yield "- The whole function is one cluster."


def _cluster_lines(cluster: FormedCluster) -> Iterator[str]:
    count = len(cluster.members)
    yield f"- {_code_span(cluster.name)}: {count} nodes: {_names(cluster.members)}"
    for name, condition in list(cluster.may_be_dead.items())[:_MAX_ITEMS]:
        yield f"  - its input {_code_span(name)} may be dead: live if {_escape_markdown(condition)}"
    for kind, names in (("Merge", cluster.merges), ("Switch", cluster.switches)):
        if names:
            yield f"  - {kind} inside: {_names(names)}"


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MAX_ITEMS} more" * (len(names) > _MAX_ITEMS)
    return ", ".join(map(_code_span, names[:_MAX_ITEMS])) + more


def _commands(fault: ModeFault) -> Iterator[str]:
    oracle, delta = fault.oracle, fault.delta
    options = [("with", fault.mode.text)]
    if oracle.against is not None:
        options.append(("against", oracle.against.text))
    # without targets, the outputs of the graph are fetched
    options += [("fetch", name) for name in delta.fetches if delta.targets]
    options += [("target", name.removeprefix("^")) for name in delta.targets]
    tolerances = (("rtol", oracle.options.rtol), ("atol", oracle.options.atol))
    options += [(name, repr(value)) for name, value in tolerances if value is not None]
    if oracle.pool.seconds != DEFAULT_SECONDS:
        options.append(("run-timeout", f"{oracle.pool.seconds:g}"))
    options += [("feed", text) for text in _feed_texts(delta.inputs)]
    words = "".join(f" --{name} {_shell_word(text)}" for name, text in options)
    yield "python repro.py"
    yield f"cfgraph diff graph.pb --run{words}"


def _feed_texts(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield values for `--feed`, in one line each."""
    for name, value in inputs.items():
        text = value_text(value, full=True)
        yield f"{name.removesuffix(':0')}={' '.join(map(str.strip, text.split(chr(10))))}"


def _shell_word(text: str) -> str:
    """Quote a word; bash reads escapes in its place if it is not printable."""
    if text.isprintable():
        return shlex.quote(text)
    safe = (c if c.isprintable() and c not in "\\'" else f"\\U{ord(c):08x}" for c in text)
    return f"$'{''.join(safe)}'"
