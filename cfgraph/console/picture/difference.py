"""Model of a page that shows two graphs in one picture, with what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cfgraph.cli.output import note
from cfgraph.comparison.differences import ChangedNode, GraphDiff, NodesDiff
from cfgraph.console.graph_files import Source
from cfgraph.console.picture.model import page_bytes
from cfgraph.console.picture.pages import page_model, page_title
from cfgraph.console.views.selection import GraphView, NodeSelection
from cfgraph.ir.file_io import StagedFiles

# removed nodes per box
_CHUNK: Final = 40
_MAX_CHANGES: Final = 20
# nodes of a picture that needs no folding, and the fewest members that one box stands for
_MAX_WHOLE: Final = 40
_MIN_FOLD: Final = 2
# members of a node that describe its place in the picture of its own graph
_OWN_PLACE: Final = ("when", "group", "folded", "body", "argument")


@dataclass(frozen=True, slots=True)
class DifferencePage:
    """A page to write to `path`."""

    path: str

    def write(
        self, sources: tuple[Source, Source], delta: GraphDiff, side_text: Callable[[Any], str]
    ) -> None:
        """Write the page; `side_text` formats the values of changes."""
        with StagedFiles() as files:
            file = files.open(self.path)
            file.write(page_bytes(difference_model(sources, delta, side_text)))
        note(f"wrote {self.path}")


def difference_model(
    sources: tuple[Source, Source], delta: GraphDiff, side_text: Callable[[Any], str]
) -> dict[str, Any]:
    """Describe the second graph, with the removed nodes of the first; nodes that differ say how."""
    before, after = (_whole_model(source) for source in sources)
    builder = _DifferenceBuilder(before, after, side_text)
    builder.add(delta.nodes, "")
    for function in delta.functions_changed:
        builder.add(function.nodes, f"{function.name}/")
    for name in delta.functions_added:
        builder.mark_function(name)
    builder.fold_unchanged()
    titles = [page_title(source.path) for source in sources]
    notes = [*after["notes"], *(f"function {name} was removed" for name in delta.functions_removed)]
    compared = {"title": " and ".join(titles), "difference": True, "gone": builder.gone}
    return {**after, **compared, "notes": notes}


def _whole_model(source: Source) -> dict[str, Any]:
    whole = GraphView(source.graph)
    return page_model(source, whole, [NodeSelection(whole, list(source.graph))])


class _DifferenceBuilder:
    """Adds the nodes and edges of one model that another lacks."""

    def __init__(
        self, before: Mapping[str, Any], after: dict[str, Any], side_text: Callable[[Any], str]
    ) -> None:
        self.old: list[dict[str, Any]] = before["nodes"]
        self.nodes: list[dict[str, Any]] = after["nodes"]
        self.groups: list[dict[str, Any]] = after["groups"]
        self.ops = after["ops"]
        self.old_ops = before["ops"]
        self.side_text = side_text
        self.numbers = {node["name"]: number for number, node in enumerate(self.nodes)}
        self.old_numbers = {node["name"]: number for number, node in enumerate(self.old)}
        # per node of the first graph its node in the picture
        self.twins = [self.numbers.get(node["name"]) for node in self.old]
        self.gone: list[list[int]] = []

    def add(self, delta: NodesDiff, prefix: str) -> None:
        """Mark the nodes that differ in the graph or in a function, and add the removed ones."""
        for old, new in delta.renamed.items():
            self.twins[self.old_numbers[prefix + old]] = self.numbers[prefix + new]
        for node in delta.added:
            self._mark(self.numbers[prefix + node.name], "added")
        removed = [self.old_numbers[prefix + node.name] for node in delta.removed]
        for number in removed:
            self.twins[number] = len(self.nodes)
            self.nodes.append({"status": "removed"})
        for item in delta.changed:
            twin = self.numbers[prefix + item.after.name]
            self.twins[self.old_numbers[prefix + item.before.name]] = twin
            self._mark(twin, "changed")
            self.nodes[twin]["changes"] = self._changes(item)
        self._fill(removed, f"removed from {prefix[:-1]}" if prefix else "removed")
        for item in delta.changed:
            self._lost_edges(self.old_numbers[prefix + item.before.name])

    def mark_function(self, name: str) -> None:
        """Mark all nodes of a new function."""
        for number, node in enumerate(self.nodes):
            if node["name"].startswith(f"{name}/"):
                self._mark(number, "added")

    def _mark(self, number: int, status: str) -> None:
        self.nodes[number]["status"] = status
        self.nodes[number].pop("folded", None)

    def _changes(self, item: ChangedNode) -> list[list[str | None]]:
        """Return the first changes of a node: part, old text, new text."""
        return [
            [
                change.part,
                None if change.before is None else self.side_text(change.before),
                None if change.after is None else self.side_text(change.after),
            ]
            for change in item.changes[:_MAX_CHANGES]
        ]

    def _fill(self, removed: list[int], label: str) -> None:
        """Describe the removed nodes, in boxes of bounded size."""
        outer = 0
        if len(removed) > _CHUNK:
            outer = self._group("scope", label, 0)
        for index, number in enumerate(removed):
            if index % _CHUNK == 0:
                box = outer
                if outer:
                    box = self._group("chunk", f"{label} {index // _CHUNK + 1}", outer)
            old = {key: value for key, value in self.old[number].items() if key not in _OWN_PLACE}
            twin = self.twins[number]
            assert twin is not None
            old["in"] = [self._source(item) for item in old.get("in", ())]
            old["after"] = [self._control(item) for item in old.get("after", ())]
            self.nodes[twin] |= {**old, "group": self._neighbor_group(number) if not outer else box}
            self.ops.setdefault(old["op"], self.old_ops[old["op"]])

    def fold_unchanged(self) -> None:
        """Put nodes and boxes away that neither differ nor are next to a node that does.

        Each box with differences has one closed box for the others in it. A small picture is whole.
        """
        if sum(not node.get("folded") for node in self.nodes) <= _MAX_WHOLE:
            return
        differing = {number for number, node in enumerate(self.nodes) if "status" in node}
        near = set(differing)
        for number, node in enumerate(self.nodes):
            sources = {item[0] for item in node.get("in", ()) if isinstance(item, list)}
            if number in differing:
                near |= sources
            elif sources & differing:
                near.add(number)
        parents = [group.get("parent", 0) for group in self.groups]
        holds, differs = (self._enclosing(numbers, parents) for numbers in (near, differing))
        folds: dict[int, list[dict[str, Any]]] = {}
        for number, node in enumerate(self.nodes):
            if number not in near and node["group"] in differs:
                folds.setdefault(node["group"], []).append(node)
        for number, group in enumerate(self.groups[1:], 1):
            if number not in holds and parents[number] in differs:
                folds.setdefault(parents[number], []).append(group)
        for box, members in folds.items():
            if sum(not member.get("folded") for member in members) < _MIN_FOLD:
                continue
            fold = self._group("unchanged", "unchanged", box)
            for member in members:
                member["group" if "name" in member else "parent"] = fold
        self._sort_groups()

    def _enclosing(self, numbers: Iterable[int], parents: Sequence[int]) -> set[int]:
        """Return all boxes around some nodes."""
        boxes = {0}
        for number in numbers:
            box = self.nodes[number]["group"]
            while box not in boxes:
                boxes.add(box)
                box = parents[box]
        return boxes

    def _sort_groups(self) -> None:
        """Number the boxes so that each comes after the one around it."""
        children: dict[int | None, list[int]] = {}
        for number, group in enumerate(self.groups):
            children.setdefault(group.get("parent"), []).append(number)
        order = [0]
        for number in order:
            order += children.get(number, ())
        places = {number: place for place, number in enumerate(order)}
        self.groups[:] = [self.groups[number] for number in order]
        for group in self.groups[1:]:
            group["parent"] = places[group["parent"]]
        for node in self.nodes:
            node["group"] = places[node["group"]]

    def _group(self, kind: str, label: str, parent: int) -> int:
        self.groups.append({"kind": kind, "label": label, "parent": parent})
        return len(self.groups) - 1

    def _neighbor_group(self, number: int) -> int:
        """Return the box of an input that both graphs have, or the outermost one."""
        for item in self.old[number].get("in", ()):
            twin = self.twins[item[0]] if isinstance(item, list) else None
            if twin is not None and "group" in self.nodes[twin]:
                group: int = self.nodes[twin]["group"]
                return group
        return 0

    def _source(self, item: list[int] | str) -> list[int] | str:
        twin = self.twins[item[0]] if isinstance(item, list) else None
        if twin is None or isinstance(item, str):
            return item if isinstance(item, str) else str(self.old[item[0]]["name"])
        return [twin, item[1]]

    def _control(self, item: int | str) -> int | str:
        twin = self.twins[item] if isinstance(item, int) else None
        if twin is None or isinstance(item, str):
            return item if isinstance(item, str) else str(self.old[item]["name"])
        return twin

    def _lost_edges(self, number: int) -> None:
        """Record the inputs that a node had only in the first graph."""
        twin = self.twins[number]
        assert twin is not None
        present = [item[0] for item in self.nodes[twin].get("in", ()) if isinstance(item, list)]
        for item in self.old[number].get("in", ()):
            source = self.twins[item[0]] if isinstance(item, list) else None
            if source is not None and source not in present:
                self.gone.append([source, twin])
