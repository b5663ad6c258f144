"""A prediction in virtual time: the hardware it assumes, the part of each device, and messages."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Annotated, Final

from cfgraph.cli.output import OutputTable, Page, hidden_notes, report_table
from cfgraph.console.runs.run_request import RunRequest
from cfgraph.errors import CfgraphError
from cfgraph.ir.devices import LOCAL_TASK, device_ranges, merge_device_names, short_device_name
from cfgraph.ir.graph import Graph
from cfgraph.ir.units import format_byte_size, format_count, format_duration
from cfgraph.reports import Column, Count, Maybe, Real, Record
from cfgraph.runtime.cost_model import CostModel
from cfgraph.runtime.preparation.prepared_runs import RunResult
from cfgraph.runtime.session import Session
from cfgraph.runtime.trace.events import TraceEvent

# a device that computes for a smaller part of the time is explained
_HARDLY_USED: Final = 0.1
# of the messages, those that take most of the time
_MAX_MESSAGES: Final = 20
_PREFIXES: Final = ("", "k", "M", "G", "T", "P")


def _seconds_text(seconds: float) -> str:
    return format_duration(seconds * 1e9)


def _rate_text(rate: float) -> str:
    """A number per second with a prefix: `67 T`."""
    power = 0
    while rate >= 1000 and power < len(_PREFIXES) - 1:
        rate, power = rate / 1000, power + 1
    return f"{rate:.4g} {_PREFIXES[power]}".rstrip()


def _share_text(share: float) -> str:
    return f"{100 * share:.0f} %"


class AssumedDevice(Record):
    """The speed of some devices; `launch` is in seconds."""

    devices: Annotated[Sequence[str], Column(style="cyan", cell=device_ranges)]
    flops: Annotated[Real, Column(title="operations/s", right=True, cell=_rate_text)]
    bytes: Annotated[Real, Column(title="bytes/s", right=True, cell=_rate_text)]
    launch: Annotated[Real, Column(title="kernel launch", right=True, cell=_seconds_text)]


class AssumedLink(Record):
    """The speed of messages between some devices; `latency` is in seconds."""

    links: Annotated[Sequence[str], Column(style="cyan")]
    bandwidth: Annotated[Real, Column(title="bytes/s", right=True, cell=_rate_text)]
    latency: Annotated[Real, Column(right=True, cell=_seconds_text)]


class DeviceUse(Record):
    """The nodes and tokens of a device, its seconds of work, and its part of the whole time."""

    device: Annotated[str, Column(style="cyan")]
    nodes: Count
    tokens: Count
    busy: Annotated[Real, Column(right=True, cell=_seconds_text)]
    share: Annotated[Real, Column(title="of the time", right=True, cell=_share_text)]
    #: The reason why the device is empty or hardly used.
    reason: Annotated[str | None, Column(optional=True)]


class MessageUse(Record):
    """The messages with a tensor from a device to another, and the bytes of all of them."""

    tensor: Annotated[str, Column(style="cyan", names=True, scoped=True)]
    from_: Annotated[str, Column(title="from")]
    to: str
    times: Count
    bytes: Annotated[Count, Column(right=True, cell=format_byte_size)]


class OneDevice(Record):
    """The time of the same run on the busiest device alone, or the reason why it is unknown."""

    device: str
    seconds: Maybe[Real]
    reason: Maybe[str]


class Prediction(Record):
    """The predicted seconds, and what they follow from."""

    seconds: Real
    one_device: Maybe[OneDevice]
    source: str  #: The origin of the assumed speeds.
    hardware: Sequence[AssumedDevice]
    links: Sequence[AssumedLink]
    devices: Sequence[DeviceUse]
    messages: Sequence[MessageUse]


@dataclass(slots=True)
class _Work:
    """The tokens of a device, the nanoseconds that they take, and their nodes."""

    tokens: int = 0
    busy_ns: int = 0
    received: int = 0
    nodes: set[str] = field(default_factory=set)


class RunWork:
    """Observer that adds up the work of each device, and the messages."""

    def __init__(self) -> None:
        self.work: defaultdict[str, _Work] = defaultdict(_Work)
        self.messages: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)

    def event(self, event: TraceEvent) -> None:
        """Add a token, or the message that it sends."""
        if not event.is_token:
            return
        work = self.work[event.device]
        work.tokens += 1
        work.busy_ns += event.end_ns - event.start_ns
        work.received += event.is_recv
        work.nodes.add(event.node)
        if event.is_send and event.peer != event.device:
            count = self.messages[event.node, event.device, event.peer]
            count[:] = [count[0] + 1, count[1] + event.bytes] if count else [1, event.bytes]


def predict(
    source: Graph,
    result: RunResult,
    work: RunWork,
    run_on: Callable[[str], Session] | None,
    request: RunRequest,
) -> Prediction:
    """The prediction of a run that ended; `run_on` makes a session on a device alone."""
    model, elapsed = result.config.costs, result.elapsed
    assert model is not None
    assert elapsed is not None
    requested = [short_device_name(name) for name in result.config.devices]
    used = sorted(work.work)
    devices = list(dict.fromkeys([*requested, *used]))
    busiest = max(used, key=lambda name: work.work[name].busy_ns, default=None)
    alone = None
    if busiest is not None and len(devices) > 1 and run_on is not None:
        alone = _one_device(busiest, run_on, request)
    return Prediction(
        elapsed,
        alone,
        model.source,
        [*_assumed_devices(model, devices)],
        [*_assumed_links(model, work)],
        [*_device_uses(source, model, elapsed, work, devices)],
        [*_message_uses(result.graph, work)],
    )


def _one_device(device: str, run_on: Callable[[str], Session], request: RunRequest) -> OneDevice:
    """Predict the run on one device; what it prints is dropped."""
    try:
        with hidden_notes(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            session = run_on(device)
            step = request.step._replace(trace=None)
            with session:
                for init in request.inits:
                    session.execute(init, request.feeds())
                elapsed = session.execute(request.spec, request.feeds(), step).elapsed
    except CfgraphError as error:
        return OneDevice(device, None, error.message)
    return OneDevice(device, elapsed, None)


def _assumed_devices(model: CostModel, devices: Iterable[str]) -> Iterator[AssumedDevice]:
    groups = defaultdict[tuple[float, float, float], list[str]](list)
    for device in devices:
        speed, _ = model.speed(device)
        groups[speed.flops, speed.bytes, speed.launch].append(device)
    for speeds, names in groups.items():
        yield AssumedDevice(names, *speeds)


def _assumed_links(model: CostModel, work: RunWork) -> Iterator[AssumedLink]:
    groups = defaultdict[tuple[float, float], list[str]](list)
    for source, target in dict.fromkeys((source, target) for _, source, target in work.messages):
        wire = model.wire(source, target)
        groups[wire.bandwidth, wire.latency].append(f"{source}>{target}")
    for speeds, names in groups.items():
        yield AssumedLink(names, *speeds)


def _device_uses(
    source: Graph, model: CostModel, elapsed: float, work: RunWork, devices: Sequence[str]
) -> Iterator[DeviceUse]:
    for device in devices:
        done = work.work.get(device, _Work())
        busy = done.busy_ns / 1e9
        share = min(1.0, busy / elapsed) if elapsed else 0.0
        reason = None
        if not done.nodes:
            reason = _reason_for_none(source, model, device, devices)
        elif share < _HARDLY_USED and len(devices) > 1:
            reason = f"its {format_count(len(done.nodes), 'node')} take only {_seconds_text(busy)}"
            if done.received:
                reason += f", and wait for {format_count(done.received, 'message')}"
        yield DeviceUse(device, len(done.nodes), done.tokens, busy, share, reason)


def _reason_for_none(source: Graph, model: CostModel, device: str, devices: Sequence[str]) -> str:
    """The reason why no node of a run is on a device."""
    names = (merge_device_names(node.device, str(LOCAL_TASK)) for node in source if node.device)
    requests = sum(short_device_name(name) == device for name in names)
    if requests:
        return f"no fetch needs the {format_count(requests, 'node')} that request it"
    latency = min(
        (model.wire(other, device).latency for other in devices if other != device), default=0.0
    )
    message = f"a message takes {_seconds_text(latency)}"
    return f"no node would end sooner there, as {message}; --place GLOB=DEVICE places nodes"


def _message_uses(graph: Graph, work: RunWork) -> Iterator[MessageUse]:
    """The messages by tensor, those with most bytes first."""
    ranked = sorted(work.messages.items(), key=lambda item: (-item[1][1], -item[1][0], item[0]))
    for (name, source, target), (times, size) in ranked:
        node = graph.nodes.get(name)
        tensor = node.inputs[0].name if node is not None and node.inputs else name
        yield MessageUse(tensor, source, target, times, size)


def print_prediction(
    out: Page, prediction: Prediction, until: int | None, stopped_at: int | None
) -> None:
    """Print the time, the assumed hardware, and what the devices do."""
    out.line()
    out.heading("predicted time", _time_text(prediction.seconds, until, stopped_at))
    for line in _comparison(prediction):
        out.line(f"  {line}")
    out.line()
    out.heading("assumed hardware", prediction.source)
    out.table(_assumed_table(prediction))
    if len(prediction.devices) > 1:
        out.line()
        out.heading("devices")
        used = [use for use in prediction.devices if use.nodes]
        out.table(report_table(DeviceUse, used, "device", "nodes", "tokens", "busy", "share"))
        for line in _reasons(prediction.devices):
            out.line(out.wrapped(f"  {line}"))
    if prediction.messages:
        shown = prediction.messages[:_MAX_MESSAGES]
        hidden = len(prediction.messages) - len(shown)
        out.line()
        out.heading("messages", f"{hidden} more with --json" if hidden else "")
        out.table(report_table(MessageUse, shown, "tensor", "from_", "to", "times", "bytes"))


def _reasons(devices: Sequence[DeviceUse]) -> Iterator[str]:
    """The reasons why devices are empty or hardly used, each with its devices."""
    reasons = defaultdict[str, list[DeviceUse]](list)
    for use in devices:
        if use.reason is not None:
            reasons[use.reason].append(use)
    for reason, uses in reasons.items():
        names = device_ranges(use.device for use in uses)
        yield f"{names} {'hardly used' if uses[0].nodes else 'empty'}: {reason}"


def _time_text(seconds: float, until: int | None, stopped_at: int | None) -> str:
    """The time of a run that might have stopped at iteration `until`."""
    text = _seconds_text(seconds)
    if until is None:
        return text
    if stopped_at is None:
        return f"{text} for the whole run, which did not reach iteration {until}"
    each = _seconds_text(seconds / until)
    return f"{text}, when iteration {until} began, {each} per iteration"


def _comparison(prediction: Prediction) -> Iterator[str]:
    alone = prediction.one_device
    if alone is None:
        return
    if alone.seconds is None:
        yield f"on {alone.device} alone it is not predicted: {alone.reason}"
        return
    ratio = alone.seconds / prediction.seconds if prediction.seconds else 1.0
    gain = f"{ratio:.2f} times as long" if ratio >= 1 else "less: messages cost more than they save"
    yield f"on {alone.device} alone {_seconds_text(alone.seconds)}, {gain}"


def _assumed_table(prediction: Prediction) -> OutputTable:
    """Devices and links in one table."""
    devices = report_table(
        AssumedDevice, prediction.hardware, "devices", "flops", "bytes", "launch"
    )
    links = report_table(AssumedLink, prediction.links, "links", "bandwidth", "latency")
    columns = [
        Column("device or link", style="cyan"),
        *(Column(name, right=True) for name in ("operations/s", "bytes/s", "latency or launch")),
    ]
    rows = [*devices.rows, *([name, None, *rest] for name, *rest in links.rows)]
    return OutputTable(columns, [*rows])
