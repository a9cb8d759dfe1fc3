"""YAML that cannot be built, wherever it is read: one line, within a second and without memory."""

import itertools
import time
import tracemalloc
from pathlib import Path

import pytest
import yaml

from tokenfree.core.errors import UserError
from tokenfree.core.settings import nest
from tokenfree.core.yaml_text import parse_yaml
from tokenfree.workflows import cli

NAMES = "abcdefghij"
LINKS = list(itertools.pairwise(NAMES))
BAD = {
    "date": "train: {steps: 2026-02-30}",
    "valid date": "train: {steps: 2026-02-20}",
    "integer": "train: {steps: !!int x}",
    "float": "train: {steps: !!float x}",
    "timestamp": "train: !!timestamp x",
    "set": "train: !!set {a, b}",
    "blocks": "".join(f"{' ' * level}a:\n" for level in range(2000)),
    "flow": "{a: " * 2000,
    "aliases": "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in LINKS),
    "merge keys": "a: &a {k: 1, l: 2}\n"
    + "".join(f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 9)}]}}\n" for old, new in LINKS),
    "recursion": "train: &a [*a]",
    "recursion by a merge key": "train: &a {<<: *a}",
    "decimal digits": f"train: {{steps: {'9' * 5000}}}",
    "hexadecimal digits": f"train: {{steps: 0x{'f' * 9000}}}",
    "65 bits": f"train: {{steps: {2**64}}}",
    "length": f"train: {'a' * 10**6}",
    "number of values": f"train: [{'1, ' * 30_000}]",
    "two keys": "train: {steps: 1, steps: 2}",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_parse_yaml_refuses_in_one_line(text: str) -> None:
    began = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"^[^\n]{3,400}$"):
            parse_yaml(text)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 5


def test_parse_yaml_takes_aliases_and_merge_keys() -> None:
    text = "base: &base {x: 1, y: [1, null, true, 0.5, text]}\nother: {<<: *base, x: 2}\nthird: *base\n"
    assert parse_yaml(text.encode()) == parse_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize("text", [text for text in BAD.values() if len(text) < 1000])
def test_readers_of_yaml_name_their_source(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    assert cli.main(["model", str(tmp_path / "mine.yaml")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"tokenfree: recipe {tmp_path}/mine.yaml: not YAML: ")
    assert error.count("\n") == 1
    with pytest.raises(UserError, match=r"--train: cannot read the value '.*' as YAML"):
        nest([("train", text)])
