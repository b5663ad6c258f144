"""`--verify`: run a graph before and after a change, and compare the values."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cfgraph.cli.output import is_quiet, page
from cfgraph.cli.transform_options import RunInputs
from cfgraph.console.graph_files import Source, require_single_stdin
from cfgraph.errors import UsageError
from cfgraph.ir.files import dumps, loads
from cfgraph.ir.graph import Graph
from cfgraph.ir.library import copy_graph

if TYPE_CHECKING:
    from cfgraph.compare.differences import RunDiff
    from cfgraph.compare.equivalence import ComparisonRunOptions


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """Comparison of a result with the input; true if both compute the same."""

    delta: RunDiff
    graphs: tuple[Graph, Graph]

    def __bool__(self) -> bool:
        return not self.delta

    def show(self) -> None:
        """Report the comparison on stderr; differences also with `--quiet`."""
        from cfgraph.console.comparisons.diff_run import print_runs

        if self and is_quiet():
            return
        out = page(stream=sys.stderr)
        out.heading("verify", "A is the input, B is the result")
        print_runs(out, self.delta, self.graphs)
        if not self:
            out.line("nothing was written", "red")

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a member of a JSON document."""
        from cfgraph.console.comparisons.diff_run import runs_json

        return runs_json(self.delta, self.graphs)


@dataclass(slots=True)
class Verification:
    """Compares the result of a command with its input, if `enabled`.

    It is None for a command that cannot verify, or whose inputs have another use. Imports inside: a
    command that does not verify must not load the runtime. With `shares_names` the signature and
    the variables are also options of the pass.
    """

    inputs: RunInputs = field(default_factory=RunInputs)
    enabled: bool | None = False
    shares_names: bool = False
    _original: Graph | None = field(default=None, init=False)
    _options: ComparisonRunOptions | None = field(default=None, init=False)

    def before(self, source: Source) -> None:
        """Copy the graph and read the inputs. Raises UsageError if they do not fit the graph."""
        if not self.enabled:
            own = self.inputs
            if self.shares_names:
                own = own.replace(signature=None, variables=None, allow_io=False)
            if self.enabled is not None and own.is_set:
                message = "feeds and other run options require --verify"
                raise UsageError(message, hint="add --verify")
            return
        from cfgraph.console.comparisons.diff_run import comparison_options

        require_single_stdin(source, self.inputs.feed)
        self._original = copy_graph(source.graph)
        self._options = comparison_options(self.inputs, replace(source, graph=self._original))

    def after(self, graph: Graph) -> VerificationResult | None:
        """Compare the original graph with the written one, or return None if not enabled."""
        if self._original is None:
            return None
        from cfgraph.compare.equivalence import compare_runs

        written = loads(dumps(graph, "pb"), "pb")
        delta = compare_runs(self._original, written, self._options)
        result = VerificationResult(delta, (self._original, written))
        result.show()
        return result
