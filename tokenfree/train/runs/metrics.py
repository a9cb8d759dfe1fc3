"""Records of a run: metrics.jsonl (one line per step), events.jsonl (restarts and warnings), and TensorBoard.

`metrics.jsonl` holds the history of the current model. When training returns to a checkpoint, the lines after
it are cut off, so no step occurs twice. Lines of steps:

    step, loss (nats per target, over the global batch), num_targets, accuracy, learning_rate, gradient_norm,
    characters (in the batch, without special ones and padding), seconds (of the step), data_wait (seconds of
    it spent waiting for data), utilisation (share of the device's measured peak), and other values of the
    objective, such as bits_per_character, or masked_loss, next_sentence_loss and next_sentence_accuracy,
    where loss is the sum of both; spike (1) only if the loss jumped and training continued (see
    train/loop/step.py)

Lines of validations: step, validation_loss, validation_accuracy, validation_targets, and the other values of
the objective with the prefix validation_. `events.jsonl` is never cut:
event ("init_from", "extend", "start", "resume", "slow_precision", "roll_back", "damaged_checkpoint",
"worker_lost", "not_a_number", "loss_spike", "tracker", "complete"), step, time (seconds since 1970), and
more.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenfree.core.stored_files import cut_torn_line, whole_lines
from tokenfree.train.runs.formats import EVENTS_NAME, METRICS, METRICS_NAME

Line = Mapping[str, Any]  # a line of metrics.jsonl or events.jsonl
_FLUSH_INTERVAL = 10.0  # seconds between flushes of TensorBoard's file
OnLine = Callable[[Line], None]  # takes each line as it is recorded


class ScalarWriter:
    """A writer that appends the numbers after `step` to a new TensorBoard event file in `folder`.

    TensorBoard then ignores later steps in older files. The thread of tensorboardX's SummaryWriter dies on a
    full disk.
    """

    def __init__(self, folder: Path, *, step: int) -> None:
        # Imported here, so that loading a model does not import TensorBoard.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]

        folder.mkdir(parents=True, exist_ok=True)
        self._events = EventsWriter(str(folder / "events"))
        self._events.write_event(Event(step=step + 1, file_version="brain.Event:2"))
        self._events.write_event(Event(step=step + 1, session_log=SessionLog(status=SessionLog.START)))
        self._flushed_at = float("-inf")

    def add(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        summary = Summary(
            value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        )
        self._events.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        if time.monotonic() - self._flushed_at > _FLUSH_INTERVAL:
            self._flushed_at = time.monotonic()
            self._events.flush()

    def close(self) -> None:
        self._events.close()


class Recorder(contextlib.AbstractContextManager["Recorder"]):
    """A recorder that appends lines to the files of a run.

    Lines after `step` are cut off. `on_line` gets new ones.
    """

    def __init__(self, run: Path, *, step: int, on_line: OnLine) -> None:
        self._on_line = on_line
        self._metrics_path = run / METRICS_NAME
        self._events_path = run / EVENTS_NAME
        cut(self._metrics_path, step)
        self._metrics = self._metrics_path.open("a", encoding="utf-8")
        self._scalars = ScalarWriter(run / "tensorboard", step=step)

    def metrics(self, line: Line) -> None:
        line = {key: value for key, value in line.items() if math.isfinite(value)}
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()
        self._scalars.add(line["step"], {key: value for key, value in line.items() if key != "step"})
        self._on_line(line)

    def event(self, event: str, *, step: int, **more: Any) -> None:
        self._on_line(append_event(self._events_path, event, step=step, **more))

    def __exit__(self, *error: object) -> None:
        with self._metrics, contextlib.closing(self._scalars):
            pass


def append_event(path: Path, event: str, *, step: int | None, **more: Any) -> dict[str, Any]:
    """Append one event to an events.jsonl, after cutting off an incomplete last line, and return its line."""
    line = {"event": event, "step": step, "time": round(time.time(), 3), **more}
    cut_torn_line(path)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return line


def cut(path: Path, step: int) -> None:
    """Cut off the lines after `step` and an incomplete last line, in place: readers can keep following the file."""
    if not path.exists():
        return
    end = 0
    with path.open("r+b") as file:
        for number, line in enumerate(whole_lines(file), 1):
            if METRICS.from_json(line, f"{path}: line {number}")["step"] > step:
                break
            end += len(line)
        file.truncate(end)
