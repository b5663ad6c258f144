"""The command line of a Python file that `cfgraph convert --to py` has written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, NoReturn

from cfgraph.analysis.feeds_and_fetches import missing_feeds_error
from cfgraph.cli import options
from cfgraph.cli.command_line import run_function
from cfgraph.cli.output import page
from cfgraph.cli.standard_streams import exit_code_with_output, guard_standard_streams
from cfgraph.console.runs.run_report import print_values
from cfgraph.integrations.python_export.script import Script
from cfgraph.ir.dtypes import DType
from cfgraph.ir.graph import Graph, Output
from cfgraph.ir.node import split_tensor_name
from cfgraph.runtime.feeds.parse_feeds import read_feeds
from cfgraph.runtime.restore import restore


def main(script: Script, run: Callable[..., list[Any]]) -> NoReturn:
    """Run the function of a script with the feeds of the command line, and print the results."""

    def command(
        feed: options.Feed = [],  # noqa: B006 - typer copies it
        feeds: options.Feeds = [],  # noqa: B006
        init: options.Init = [],  # noqa: B006
        variables: options.Variables = None,
        seed: options.Seed = 0,
        full: options.Full = False,
        color: options.ColorChoice = options.Color.auto,
    ) -> None:
        """Run the graph and print the fetched values."""
        values = read_feeds(script.inputs, feed, feeds, seed, script.input_names)
        inits = [script.find_initializer(name) for name in init]
        needed = {
            name: item.default for call in (run, *inits) for name, item in _parameters(call).items()
        }
        missing = [
            script.inputs.tensor(tensor)
            for name, tensor in script.tensors.items()
            if tensor not in values and needed.get(name) is Parameter.empty
        ]
        if missing:
            raise missing_feeds_error(script.inputs, missing, script.input_names)
        if variables is not None:
            script.state = restore(variables)
        script.seed = seed
        fed = {name: values[item] for name, item in script.tensors.items() if item in values}
        for name in init:
            script.initialize(name, **fed)
        results = run(**{name: value for name, value in fed.items() if name in _parameters(run)})
        fetched = zip(script.fetches, results, strict=True)
        printed = {_output(name, dtype): value for (name, dtype), value in fetched}
        labels = {item: script.labels[item.name] for item in printed if item.name in script.labels}
        print_values(page(color), printed, {}, full, labels=labels)

    guard_standard_streams()
    name = os.path.basename(sys.argv[0])
    sys.exit(exit_code_with_output(lambda: run_function(command, sys.argv[1:], name)))


def _parameters(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    return signature(function).parameters


def _output(name: str, dtype: str | None) -> Output:
    """An output of this name and dtype."""
    base, port = split_tensor_name(name)
    port = port or 0
    graph = Graph()
    dtypes = () if dtype is None else (DType.from_name(dtype),) * (port + 1)
    node = graph.create(base, "IdentityN" if dtypes else "Fetched", attrs={"T": dtypes})
    return Output(node, port)
