"""Experiment trackers beside metrics.jsonl and TensorBoard: Weights & Biases and MLflow, imported only where asked for.

They live in the process of the command, and are told what the live line is told. Where they write is theirs to be told,
by their own environment variables: `WANDB_MODE=offline`, `WANDB_PROJECT`, `MLFLOW_TRACKING_URI`, and so on. A run that
goes on after a stop is the same run to them: its id is in events.jsonl.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tokenfree.core.errors import UserError
from tokenfree.core.settings import flatten
from tokenfree.train.runs.metrics import Line, OnLine
from tokenfree.train.runs.run import Run

PROJECT = "tokenfree"  # where the tracker's own variables name no other


class Tracker(Protocol):
    """A run in a tracker, under an id that stays when the run goes on."""

    id: str

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take the numbers of a line of metrics, by their names in metrics.jsonl."""
        ...

    def close(self, *, failed: bool) -> None:
        """Send what was not sent yet; `failed` where the run did not come to its end."""
        ...


class Wandb:
    """A run of Weights & Biases, drawn over its metric `step`: after a roll-back steps come again.

    Args:
        name: of the run.
        id: that it has in the tracker, None for a new one.
        settings: its resolved recipe by dotted keys.
        folder: where files of the tracker may lie; None: wherever it puts them by itself.

    Raises:
        UserError: the tracker refuses it; the message has the remedy.
    """

    def __init__(self, name: str, id: str | None, settings: Mapping[str, Any], folder: Path | None) -> None:
        import wandb

        try:
            self._run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=name,
                id=id or uuid.uuid4().hex[:12],
                resume="allow",
                config=dict(settings),
                dir=None if "WANDB_DIR" in os.environ or folder is None else str(folder),
                settings=wandb.Settings(silent=True, console="off"),
            )
        except wandb.Error as error:
            raise UserError(
                f"train.log_to: wandb: {str(error).splitlines()[0]}; run `wandb login`, or set WANDB_MODE=offline"
            ) from error
        self.id = self._run.id
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker.log`."""
        self._run.log({"step": step, **values})

    def close(self, *, failed: bool) -> None:
        """See `Tracker.close`."""
        self._run.finish(exit_code=int(failed))


class Mlflow:
    """A run of MLflow; in `<run>/mlruns` where MLFLOW_TRACKING_URI does not say where. Arguments as those of `Wandb`.

    Raises:
        UserError: the tracker refuses it; the message has the remedy.
    """

    def __init__(self, name: str, id: str | None, settings: Mapping[str, Any], folder: Path | None) -> None:
        import mlflow
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException

        self._metric = Metric
        uri = None
        if "MLFLOW_TRACKING_URI" not in os.environ and folder is not None:
            uri = (folder / "mlruns").as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        try:
            self._client = mlflow.MlflowClient(tracking_uri=uri)
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            found = self._client.get_experiment_by_name(experiment)
            number = self._client.create_experiment(experiment) if found is None else found.experiment_id
            self.id = id or self._client.create_run(number, run_name=name, tags={}).info.run_id
            # They cannot be changed: of a setting that is another when the run goes on, the first value stays.
            known = self._client.get_run(self.id).data.params
            params = [Param(key, str(value)) for key, value in settings.items() if key not in known]
            for start in range(0, len(params), 100):  # as many as a request may hold
                self._client.log_batch(self.id, params=params[start : start + 100])
            self._client.log_batch(self.id, tags=[RunTag("tokenfree.run", name)])
        except MlflowException as error:
            raise UserError(
                f"train.log_to: mlflow: {str(error).splitlines()[0]}; set MLFLOW_TRACKING_URI to a server or folder "
                "that can be written"
            ) from error

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker.log`."""
        now = int(1000 * time.time())
        metrics = [self._metric(key, value, now, step) for key, value in values.items()]
        self._client.log_batch(self.id, metrics=metrics)

    def close(self, *, failed: bool) -> None:
        """See `Tracker.close`."""
        self._client.set_terminated(self.id, "FAILED" if failed else "FINISHED")


KINDS: dict[str, tuple[str, Callable[..., Tracker]]] = {"wandb": ("wandb", Wandb), "mlflow": ("mlflow", Mlflow)}


def check(names: Sequence[str]) -> None:
    """See that the trackers of these `names` are installed.

    Raises:
        UserError: some are not; the message has the remedy.
    """
    missing = [name for name in names if importlib.util.find_spec(KINDS[name][0]) is None]
    if missing:
        raise UserError(
            f"train.log_to: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed; run "
            "pip install '.[tracking]' in a checkout of tokenfree, or leave it out"
        )


@contextlib.contextmanager
def tracked(
    names: Sequence[str], run: Run, settings: Mapping[str, Any], progress: OnLine | None
) -> Iterator[OnLine | None]:
    """What takes the lines of a run, for `progress` and for the trackers of these `names`.

    A tracker that fails is left out from then on, with a message: metrics.jsonl has everything.

    Raises:
        UserError: a tracker cannot be started; the message has the remedy.
    """
    if not names:
        yield progress
        return
    trackers = {name: _open(name, run, settings) for name in names}

    def take(line: Line) -> None:
        if progress is not None:
            progress(line)
        values = {key: value for key, value in line.items() if key != "step" and _is_number(value)}
        for name, tracker in list(trackers.items()) if "event" not in line else ():
            try:
                tracker.log(line["step"], values)
            except Exception as error:  # the network, a full quota: whatever a tracker may raise
                del trackers[name]
                if progress is not None:
                    reason = (str(error).splitlines() or [type(error).__name__])[0]
                    message = f"warning: {name} gets no more metrics ({reason}); metrics.jsonl has all"
                    progress({"event": "tracker_lost", "step": line["step"], "message": message})

    failed = True
    try:
        yield take
        failed = False
    finally:
        for tracker in trackers.values():
            with contextlib.suppress(Exception):
                tracker.close(failed=failed)


def _open(name: str, run: Run, settings: Mapping[str, Any]) -> Tracker:
    ids = [line["id"] for line in run.events() if line["event"] == "tracker" and line["tracker"] == name]
    folder = None if "://" in run.name else run.folder
    title = run.name.rstrip("/").rsplit("/", 1)[-1]
    tracker = KINDS[name][1](title, ids[-1] if ids else None, dict(flatten(settings)), folder)
    if not ids:
        run.add_event("tracker", tracker=name, id=tracker.id)
    return tracker


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
