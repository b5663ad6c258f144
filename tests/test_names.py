"""Names say what a thing is in the field's words, and a class has a name of its own."""

from __future__ import annotations

from pathlib import Path

from tests.measures import banned_words, duplicate_classes, syntax_trees

# class names that several files may define, each with its reason; five at most
SHARED_NAMES: dict[str, str] = {}


def test_no_identifier_contains_a_banned_word(root: Path) -> None:
    found = {
        path: words
        for path, tree in syntax_trees(root).items()
        if (words := banned_words(path, tree))
    }
    assert not found


def test_no_class_name_is_defined_in_two_files(root: Path) -> None:
    duplicates = duplicate_classes(syntax_trees(root))
    assert not {name: paths for name, paths in duplicates.items() if name not in SHARED_NAMES}
    assert set(SHARED_NAMES) <= set(duplicates), "an exception that is none any more"
    assert len(SHARED_NAMES) <= 5
