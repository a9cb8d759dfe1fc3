import json
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]

from tests.conftest import read_json_lines
from tokenfree.train.runs.metrics import Recorder, append_event, cut


def record(run: Path, steps: range, *, start: int) -> list[object]:
    seen: list[object] = []
    with Recorder(run, step=start, on_line=seen.append) as recorder:
        for step in steps:
            recorder.metrics({"step": step, "loss": step / 2})
    return seen


def test_no_step_twice_after_going_back(tmp_path: Path) -> None:
    record(tmp_path, range(1, 6), start=0)
    seen = record(tmp_path, range(4, 7), start=3)
    assert [line["step"] for line in read_json_lines(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]
    assert seen == read_json_lines(tmp_path / "metrics.jsonl")[3:]


def test_a_line_cut_short_by_a_kill_goes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert [line["step"] for line in read_json_lines(path)] == [1, 2]
    cut(path, 5)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_validations_of_the_step_stay(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2}\n{"step": 2, "validation_loss": 1}\n{"step": 3}\n')
    cut(path, 2)
    assert len(read_json_lines(path)) == 2


def board(path: Path) -> list[Any]:
    """The events of a file for TensorBoard: length, checksum, event and checksum, again and again."""
    data, events = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        events.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return events


def test_there_is_a_tensorboard(tmp_path: Path) -> None:
    record(tmp_path, range(3, 5), start=2)
    (file,) = (tmp_path / "tensorboard").iterdir()
    version, again, start, *steps = board(file)
    assert version.file_version == again.file_version == "brain.Event:2"
    assert (again.step, start.step, start.session_log.status) == (3, 3, SessionLog.START)  # later steps go
    written = [
        (event.step, {value.tag: value.simple_value for value in event.summary.value}) for event in steps
    ]
    lines = read_json_lines(tmp_path / "metrics.jsonl")
    assert written == [(line["step"], pytest.approx({"loss": line["loss"]})) for line in lines]


def test_recording_starts_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with Recorder(tmp_path, step=0, on_line=lambda line: None) as recorder:
        recorder.metrics({"step": 1, "loss": 1.0})
        assert threading.active_count() == before  # one would end in a traceback where the disk is full


@pytest.mark.parametrize("step", [None, 4])
def test_events(tmp_path: Path, step: int | None) -> None:
    line = append_event(tmp_path / "events.jsonl", "worker_lost", step=step, ranks=[1])
    assert read_json_lines(tmp_path / "events.jsonl") == [line]
    assert json.dumps(line).startswith('{"event": "worker_lost"')
