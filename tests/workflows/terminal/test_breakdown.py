"""Scores by language and script for the terminal: tables where there is something to compare, else one line."""

from typing import Any

from tokenfree.workflows.terminal.results import breakdown_lines


def group(name: str, targets: int, loss: float = 2.0) -> dict[str, Any]:
    return {"name": name, "targets": targets, "loss": loss, "accuracy": 0.25, "without_context": 5.0}


def test_one_language_and_one_script_are_one_line() -> None:
    scripts = [group("Latin", 900), group("", 99), group("Greek", 1)]
    (line,) = breakdown_lines([group("en", 1000)], scripts)
    assert line == "hidden targets: en 100.0%; Latin 90.0%, no letters 9.9%, others 0.1%"
    (line,) = breakdown_lines([group("en", 1000)], [group("Latin", 600), group("", 400)])
    assert line == "hidden targets: en 100.0%; Latin 60.0%, no letters 40.0%"
    assert breakdown_lines([], []) == []


def test_several_have_a_table_and_small_ones_are_joined() -> None:
    languages = [group("ja", 1200), group("en", 100), group("de", 60, loss=1.0), group("fr", 20, loss=3.0)]
    lines = breakdown_lines(languages, [group("Han", 1000), group("", 380)])
    assert lines[0] == "hidden targets: Han 72.5%, no letters 27.5%"
    assert lines[1].split() == ["masked", "only,", "by", "language", "targets", "loss", "accuracy", "no", "context"]
    assert [line.split() for line in lines[2:]] == [
        ["ja", "1,200", "2.000", "25.0%", "5.000"],
        ["en", "100", "2.000", "25.0%", "5.000"],
        ["2", "with", "under", "100", "each", "80", "1.500", "25.0%", "5.000"],
    ]
    assert len({len(line) for line in lines[1:]}) == 1
    assert max(map(len, lines)) < 80


def test_a_single_small_one_keeps_its_name() -> None:
    lines = breakdown_lines([group("ja", 700), group("en", 300), group("de", 5)], [group("Latin", 1005)])
    assert [line.split()[0] for line in lines[2:]] == ["ja", "en", "de"]
