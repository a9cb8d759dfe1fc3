"""Scores by language and script for the terminal: tables where there is something to compare."""

import re
from typing import Any

from tokenfree.workflows.terminal.results import breakdown_lines


def group(name: str, targets: int, loss: float = 2.0) -> dict[str, Any]:
    return {"name": name, "targets": targets, "loss": loss, "accuracy": 0.25, "without_context": 5.0}


def test_one_of_each_is_not_listed() -> None:
    assert list(breakdown_lines([group("en", 1000)], [group("Latin", 901), group("", 99)])) == []
    assert list(breakdown_lines([], [])) == []


def test_several_have_a_table_without_small_ones() -> None:
    languages = [group("ja", 1200), group("en", 100), group("de", 60)]
    lines = list(breakdown_lines(languages, [group("Han", 1000), group("", 380)]))
    assert re.split("  +", lines[0])[0:3] == ["hidden targets, by language", "targets", "loss, nats"]
    assert [line.split() for line in lines[1:3]] == [
        ["ja", "1,200", "2.000", "25.0%", "5.000"],
        ["en", "100", "2.000", "25.0%", "5.000"],
    ]
    assert [line.split()[0] for line in lines[4:]] == ["Han", "no"]
    assert {len(line) for line in lines} == {76}
