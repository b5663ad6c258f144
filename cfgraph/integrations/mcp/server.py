"""The server on standard input and output, with the official SDK of the protocol."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Final

from cfgraph.errors import Unsupported, UsageError, install_hint
from cfgraph.integrations.mcp.calls import Lifeline, ToolAnswer, ToolRunner
from cfgraph.integrations.mcp.roots import Roots
from cfgraph.integrations.mcp.tools import TOOLS
from cfgraph.ir.units import parse_byte_size
from cfgraph.version import __version__

_INSTRUCTIONS: Final = (
    "cfgraph reads TensorFlow graphs with control flow. Start with show; check finds faults; "
    "explain says when a node runs, what limits a loop, and what an error code means. Paths are "
    "relative to {root}."
)
# calls that run at once
_MAX_CALLS: Final = 2


def serve(roots: Sequence[str], seconds: float, memory: str, answer: str) -> None:
    """Answer calls until standard input ends.

    Raises Unsupported without the extra `mcp`, UsageError for a wrong folder or limit.
    """
    try:
        import anyio
        from mcp import types
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "anyio"):
            raise
        message = "the server needs the package mcp"
        raise Unsupported(message, hint=install_hint("mcp")) from None

    if not 0 < seconds < math.inf:
        raise UsageError("--call-timeout must be positive and finite")
    parse_byte_size(memory)
    runner = ToolRunner(Roots([*roots]), seconds, memory, parse_byte_size(answer))
    limiter = anyio.CapacityLimiter(_MAX_CALLS)
    notes = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [
        types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.input_schema(),
            output_schema=tool.output_schema(),
            annotations=notes,
        )
        for tool in TOOLS
    ]

    async def list_tools(_context: Any, _request: Any) -> Any:
        return types.ListToolsResult(tools=tools)

    async def cut_if_cancelled(lifeline: Lifeline) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            lifeline.cut()

    async def call_tool(_context: Any, request: Any) -> Any:
        name, arguments = request.name, request.arguments or {}
        with Lifeline() as lifeline:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cut_if_cancelled, lifeline)
                answer: ToolAnswer = await anyio.to_thread.run_sync(
                    runner.call, name, arguments, lifeline, limiter=limiter
                )
                tasks.cancel_scope.cancel()
        text = answer.error or json.dumps(answer.document)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=None if answer.error else answer.document,
            is_error=answer.error is not None,
        )

    server: Any = Server(
        "cfgraph",
        version=__version__,
        instructions=_INSTRUCTIONS.format(root=runner.roots.folders[0]),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )

    async def main() -> None:
        async with stdio_server() as (reader, writer):
            await server.run(reader, writer, server.create_initialization_options())

    anyio.run(main)
