"""Damaged small files of a run: repaired, skipped, or refused in one line that names the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import read_json_lines
from tests.damage import damaged_bytes, put, wrong_json, wrong_lines, wrong_values
from tests.train.runs.test_checkpoints import newest, save
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.worker import roll_backs
from tokenfree.train.runs.checkpoints import checkpoint_name, mark_of
from tokenfree.train.runs.config import InitFrom, RunConfig, config_before, read_config
from tokenfree.train.runs.metrics import Recorder, append_event, cut
from tokenfree.train.runs.provenance import attempt
from tokenfree.train.runs.run import Run

LINES = b'{"event": "start", "step": 0, "time": 1.5, "workers": 1}\n'
LINES += b'{"event": "tracker", "tracker": "wandb", "id": "a1"}\n'
READERS: dict[str, tuple[bytes, Callable[[Path], Any]]] = {
    "result.json": (
        b'{"steps": 8, "loss": 1.5, "baselines": {"unigram": 2.0}}',
        lambda run: Run(run).result(),
    ),
    "events.jsonl": (LINES, lambda run: Run(run).events()),
    "metrics.jsonl": (
        b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2}\n',
        lambda run: cut(run / "metrics.jsonl", 2),
    ),
    "incidents/batch_00000004.json": (
        b'{"checkpoint": 3, "left_out": [4], "kind": "loss_spike"}',
        roll_backs,
    ),
}


def read_or_refused(read: Callable[[Path], Any], run: Path, file: str) -> None:
    try:
        read(run)
    except (UserError, IsADirectoryError) as error:
        message = str(error)
        assert file in message
        assert "\n" not in message


@pytest.mark.parametrize("file", READERS)
def test_a_damaged_file_is_named(file: str, tmp_path: Path) -> None:
    content, read = READERS[file]
    (tmp_path / file).parent.mkdir(exist_ok=True)
    wrong = wrong_lines if file.endswith("jsonl") else wrong_json
    for damaged in (*damaged_bytes(content), *wrong(content)):
        put(tmp_path / file, damaged)
        read_or_refused(read, tmp_path, file)
    put(tmp_path / file, content)
    read(tmp_path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", '"geese"'])
@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("result.json", "loss"),
        ("result.json", "seconds"),
        ("metrics.jsonl", "loss"),
        ("metrics.jsonl", "validation_loss"),
    ],
)
def test_what_is_no_number_is_named(file: str, key: str, number: str, tmp_path: Path) -> None:
    put(tmp_path / file, f'{{"step": 1, "{key}": {number}}}\n'.encode())
    with pytest.raises(UserError, match=rf"{file}.*{key}"):
        READERS[file][1](tmp_path)


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    recipe = build(PretrainRecipe, {}, source="test")
    config = RunConfig(recipe, "data", "00", InitFrom("run", "11"), {"a.B": "22"}, (attempt(),))
    content = config.text().encode()
    for damaged in damaged_bytes(content, step=101):
        put(tmp_path / "config.yaml", damaged)
        read_or_refused(read_config, tmp_path, "config.yaml")
    shallow = yaml.safe_load(content) | {"recipe": {"train": {"steps": 8}}}
    shallow["attempts"][0]["packages"] = {"torch": "2.13.0"}
    for wrong in wrong_values(shallow):
        put(tmp_path / "config.yaml", yaml.safe_dump(wrong).encode())
        read_or_refused(lambda run: config_before(run, recipe), tmp_path, "config.yaml")
    put(tmp_path / "config.yaml", content)
    assert read_config(tmp_path) == config


@pytest.mark.parametrize(
    "torn", [b'{"event": "re', b"\0\0\0", b'{"event": "start", "step": 1}', b"x" * 100_000]
)
def test_a_torn_last_event_does_not_spoil_the_next_one(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(LINES + torn)
    line = append_event(path, "resume", step=3)
    assert [event["event"] for event in Run(tmp_path).events()] == ["start", "tracker", "resume"]
    assert Run(tmp_path).events()[-1] == line


def test_values_that_json_cannot_hold_are_left_out(tmp_path: Path) -> None:
    with Recorder(tmp_path, step=0, on_line=lambda line: None) as recorder:
        recorder.metrics({"step": 1, "loss": 2.5, "accuracy": float("nan"), "gradient_norm": float("inf")})
    assert read_json_lines(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 2.5}]


def test_the_checkpoint_before_one_of_another_shape_is_used(tmp_path: Path) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    mark, state = (path / "COMMIT").read_bytes(), (path / "state.json").read_bytes()
    for place in range(len(mark) - 1):
        (path / "COMMIT").write_bytes(mark[:place] + bytes([mark[place] ^ 0x80]) + mark[place + 1 :])
        warnings: list[str] = []
        found = newest(tmp_path, warnings.append)
        assert found is not None
        assert found.step == 1
        assert "damaged: state.json does not match COMMIT" in warnings[0]
    passed_over = 0
    for wrong in (*wrong_json(state), b"[" * 100_000, b"\xff", b""):  # each under its own hash
        (path / "state.json").write_bytes(wrong)
        (path / "COMMIT").write_bytes(mark_of(wrong))
        warnings = []
        found = newest(tmp_path, warnings.append)
        assert found is not None
        passed_over += found.path != path
        assert bool(warnings) == (found.path != path)
        assert "model" in found.parts
        assert all(checkpoint_name(2) in warning and "\n" not in warning for warning in warnings)
    assert passed_over > 100
