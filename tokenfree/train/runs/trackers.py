"""Experiment trackers in addition to metrics.jsonl and TensorBoard: Weights & Biases and MLflow, imported only if used.

They run in the process of the command and get the same lines as the live display. Their own environment
variables say where they write: `WANDB_MODE=offline`, `WANDB_PROJECT`, `MLFLOW_TRACKING_URI`, and so on. A
resumed run continues the same run of a tracker; its id is in events.jsonl. A tracker whose server does not
answer within seconds is left out.
"""

import contextlib
import importlib
import importlib.util
import math
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenfree.core.errors import UserError, first_line
from tokenfree.core.machine import install_command, within
from tokenfree.core.settings_values import flatten
from tokenfree.train.runs.metrics import Line, OnLine
from tokenfree.train.runs.run import Run

PROJECT = "tokenfree"  # unless the tracker's own variables name another
_SECONDS = 10.0  # timeout of a call
_MAX_CHARACTERS = 160  # of a reason in a message
# MLflow's own defaults keep a command for minutes.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": f"{_SECONDS:g}"}


class Wandb:
    """A run of Weights & Biases. `id` is that of an earlier start.

    Raises UserError if it refuses the settings. Its x axis is the metric `step`, because steps repeat after a
    roll-back.
    """

    def __init__(self, name: str, id: str | None, settings: Mapping[str, Any], folder: Path | None) -> None:
        import wandb
        from wandb.errors import CommError

        try:
            self._run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=name,
                id=id or uuid.uuid4().hex[:12],
                resume="allow",
                config=dict(settings),
                dir=None if "WANDB_DIR" in os.environ or folder is None else str(folder),
                settings=wandb.Settings(silent=True, console="off", init_timeout=_SECONDS),
            )
        except wandb.Error as error:
            # Not of a subclass for a wrong key.
            if type(error) is CommError:
                raise
            raise UserError(
                f"train.log_to: wandb: {first_line(error)}; run `wandb login`, or set WANDB_MODE=offline"
            ) from error
        self.id = self._run.id
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({"step": step, **values})

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class Mlflow:
    """A run of MLflow, in `<run>/mlruns` by default. Raises UserError if it refuses the settings."""

    def __init__(self, name: str, id: str | None, settings: Mapping[str, Any], folder: Path | None) -> None:
        import mlflow
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException

        self._metric = Metric
        uri = None
        if "MLFLOW_TRACKING_URI" not in os.environ and folder is not None:
            uri = (folder / "mlruns").as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        for variable, value in _PATIENCE.items():
            os.environ.setdefault(variable, value)
        try:
            self._client = mlflow.MlflowClient(tracking_uri=uri)
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            existing = self._client.get_experiment_by_name(experiment)
            number = (
                self._client.create_experiment(experiment) if existing is None else existing.experiment_id
            )
            self.id = id or self._client.create_run(number, run_name=name, tags={}).info.run_id
            # MLflow's parameters cannot be changed. If a setting differs when the run resumes, the first
            # value stays.
            logged = self._client.get_run(self.id).data.params
            params = [Param(key, str(value)) for key, value in settings.items() if key not in logged]
            # The maximum per request.
            for start in range(0, len(params), 100):
                self._client.log_batch(self.id, params=params[start : start + 100])
            self._client.log_batch(self.id, tags=[RunTag("tokenfree.run", name)])
        except MlflowException as error:
            # The server was not reached, or failed.
            if str(error).startswith("API request to "):
                raise
            raise UserError(
                f"train.log_to: mlflow: {first_line(error)}; set MLFLOW_TRACKING_URI to a server or folder "
                "that can be written"
            ) from error

    def log(self, step: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [self._metric(key, value, now, step) for key, value in values.items()]
        self._client.log_batch(self.id, metrics=metrics)

    def close(self, *, failed: bool) -> None:
        self._client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


KINDS = {"wandb": Wandb, "mlflow": Mlflow}


def check(names: Sequence[str]) -> None:
    """Raise UserError unless the trackers with these `names` are installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise UserError(
                f"train.log_to: {name} is not installed; run {install_command('tracking')}, or leave it out"
            )


@contextlib.contextmanager
def tracked(
    names: Sequence[str], run: Run, settings: Mapping[str, Any], progress: OnLine
) -> Iterator[OnLine]:
    """Yield a function that takes the lines of a run.

    A tracker that fails gets no more, and a message says so.
    """
    trackers: dict[str, Wandb | Mlflow] = {}

    def lost(name: str, error: Exception, step: int | None) -> None:
        trackers.pop(name, None)
        reason = first_line(error)
        reason = reason if len(reason) <= _MAX_CHARACTERS else f"{reason[:_MAX_CHARACTERS]}..."
        message = f"warning: {name} gets no more metrics ({reason}); metrics.jsonl has all"
        progress({"event": "tracker_lost", "step": step, "message": message})

    for name in names:
        try:
            trackers[name] = _open(name, run, settings)
        except UserError:
            raise
        except Exception as error:
            lost(name, error, None)

    def take(line: Line) -> None:
        progress(line)
        values = {
            key: value
            for key, value in line.items()
            if key != "step" and isinstance(value, (int, float)) and math.isfinite(value)
        }
        for name, tracker in list(trackers.items()) if "event" not in line else ():
            try:
                within(_SECONDS, lambda tracker=tracker: tracker.log(line["step"], values))
            except Exception as error:  # trackers raise many kinds, such as for the network or a full quota
                lost(name, error, line["step"])

    failed = True
    try:
        yield take
        failed = False
    finally:
        for tracker in trackers.values():
            with contextlib.suppress(Exception):
                within(_SECONDS, lambda tracker=tracker: tracker.close(failed=failed))


def _open(name: str, run: Run, settings: Mapping[str, Any]) -> Wandb | Mlflow:
    ids = [line["id"] for line in run.events() if line["event"] == "tracker" and line["tracker"] == name]
    folder = None if "://" in run.name else run.folder
    title = run.name.rstrip("/").rsplit("/", 1)[-1]
    # Takes seconds on a busy machine.
    importlib.import_module(name)
    tracker = within(
        _SECONDS, lambda: KINDS[name](title, ids[-1] if ids else None, dict(flatten(settings)), folder)
    )
    if not ids:
        run.add_event("tracker", tracker=name, id=tracker.id)
    return tracker
