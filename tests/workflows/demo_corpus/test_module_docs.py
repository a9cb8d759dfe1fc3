"""Reading the documentation that source files carry."""

from pathlib import Path

from tokenfree.workflows.demo_corpus.module_docs import standard_library

COMMENT = "\n".join(["# An owl turns its head because its eyes cannot move. It hears a mouse under snow."] * 4)
SOURCE = f'''"""Owls."""
import math

{COMMENT}
class Owl(Bird):
    """Hunts at night."""

    def hoot(self, times=2):
        """Call."""

# owl = Owl(); owl.hoot(3); owl.hoot(4); x = [1, 2, 3]; y = {{x: 1}}; z = (1, 2, 3, 4, 5)
# owl = Owl(); owl.hoot(3); owl.hoot(4); x = [1, 2, 3]; y = {{x: 1}}; z = (1, 2, 3, 4, 5)
# owl = Owl(); owl.hoot(3); owl.hoot(4); x = [1, 2, 3]; y = {{x: 1}}; z = (1, 2, 3, 4, 5)
async def fly():
    """Go."""
'''


def test_docstrings_signatures_and_long_comments_are_found(tmp_path: Path) -> None:
    (tmp_path / "birds").mkdir()
    (tmp_path / "birds" / "__init__.py").write_text(SOURCE)
    (docs,) = standard_library(tmp_path)
    assert (docs.name, docs.summary, docs.imports) == ("birds", "Owls.", ("math",))
    assert [(entry.kind, entry.name, entry.signature, entry.text) for entry in docs.entries] == [
        ("class", "Owl", "class Owl(Bird)", "Hunts at night."),
        ("method", "Owl.hoot", "def hoot(self, times=2)", "Call."),
        ("function", "fly", "async def fly()", "Go."),
    ]
    (comment,) = docs.comments  # the disabled code is none
    assert comment.startswith("An owl turns its head because")


def test_files_that_cannot_be_read_and_tests_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "owls.py").write_text(SOURCE)
    (tmp_path / "bad.py").write_text("def hoot(:")
    (tmp_path / "latin.py").write_bytes(b'"""\xe9"""')
    (tmp_path / "not-a-module.py").write_text(SOURCE)
    assert list(standard_library(tmp_path)) == []
