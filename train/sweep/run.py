"""Runs a sweep under Ray Tune: picks settings that can work, runs trials, goes on after a kill, writes the results."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from preprocess.errors import JobError, UserError
from preprocess.manifest import Manifest, load_manifest
from preprocess.settings import fingerprint, to_mapping
from preprocess.storage import Storage
from train.config import check
from train.sweep.config import SweepRecipe, check_space
from train.sweep.results import METRICS, TrialResult, best, read, write

Progress = Callable[[Mapping[str, Any]], None]
_progress: Progress | None = None  # Tune pickles its callbacks, so they find the caller's function here

CANDIDATES_PER_TRIAL = 50  # settings that cannot work are skipped; a space of which hardly any can is refused


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to: its trials, how many settings were skipped as impossible (with reasons), and its files."""

    trials: tuple[TrialResult, ...]
    best: TrialResult | None
    skipped: Mapping[str, int]
    files: tuple[Path, ...]
    already_complete: bool = False


def choose_settings(sweep: SweepRecipe, manifest: Manifest) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The values of each trial, all different where the space allows, and the count of skipped ones by reason.

    Raises:
        UserError: fewer settings can work than there are trials; the reasons are named.
    """
    chosen: list[dict[str, Any]] = []
    skipped: dict[str, int] = {}
    seen: set[str] = set()
    candidates = sweep.candidates()
    for _ in range(CANDIDATES_PER_TRIAL * sweep.trials):
        values = next(candidates)
        if json.dumps(values) in seen:
            continue
        seen.add(json.dumps(values))
        mistakes = _mistakes(sweep, values, manifest)
        for mistake in mistakes:
            skipped[mistake] = skipped.get(mistake, 0) + 1
        if not mistakes:
            chosen.append(values)
        if len(chosen) == sweep.trials:
            return chosen, skipped
    reasons = "; ".join(sorted(skipped)) or "the space holds no more different settings"
    raise UserError(f"trials: {sweep.trials} are asked for, but only {len(chosen)} settings can be run ({reasons})")


def run_sweep(sweep: SweepRecipe, data: str, output: str, *, progress: Progress | None = None) -> SweepResult:
    """Run the sweep on the data directory `data` into the folder `output`, or go on where it was killed.

    Raises:
        UserError: the space, the data and the output do not fit together.
        JobError: every trial failed; the first one's own error is in the message.
    """
    manifest = load_manifest(data)
    check_space(sweep)
    settings, skipped = choose_settings(sweep, manifest)
    folder = Path(output)
    _claim(folder, sweep, manifest)
    trials = read(folder)
    ended_before = trials is not None
    if trials is None:
        grid = _fit(sweep, settings, str(Path(data).resolve()), folder, progress)
        trials = _results(grid, sweep.steps)
    files = write(folder, sweep, trials)
    if all(trial.state == "failed" for trial in trials):
        raise JobError(f"all {len(trials)} trials failed; {trials[0].name}: {trials[0].error}")
    return SweepResult(tuple(trials), best(trials), skipped, tuple(files), ended_before)


def _mistakes(sweep: SweepRecipe, values: Mapping[str, Any], manifest: Manifest) -> list[str]:
    try:
        return check(sweep.recipe(values), manifest)
    except UserError as error:
        return [str(error)]


def _claim(folder: Path, sweep: SweepRecipe, manifest: Manifest) -> None:
    """Write the sweep's settings into its folder; refuse a folder that holds another sweep."""
    marks = {"sweep": fingerprint(sweep), "data": manifest.fingerprint}
    path = folder / "sweep.yaml"
    if path.exists():
        old = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("fingerprints")
        if old != marks:
            differs = "the recipe" if old and old["data"] == marks["data"] else "the data"
            raise UserError(f"{folder}: holds another sweep ({differs} differs); choose another --output or remove it")
        return
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty and holds no sweep; choose another --output")
    text = yaml.safe_dump({"fingerprints": marks, "recipe": to_mapping(sweep)}, sort_keys=False)
    Storage.at(str(folder)).write_bytes(path.name, text.encode())


def _fit(sweep: SweepRecipe, settings: list[dict[str, Any]], data: str, folder: Path, progress: Progress | None) -> Any:
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # the new one prints banners at any verbosity
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    from train.ray_session import ray_session
    from train.sweep.trial import Trial

    global _progress
    _progress = progress
    configs = [
        {
            "name": f"trial_{index:03d}",
            "recipe": to_mapping(sweep.recipe(values)),
            "values": values,
            "data": data,
            "report_every_steps": sweep.report_every_steps,
        }
        for index, values in enumerate(settings)
    ]
    storage = folder.resolve() / "ray"
    experiment = str(storage / "trials")
    trainable = tune.with_resources(Trial, {"CPU": 1})
    with ray_session():
        if tune.Tuner.can_restore(experiment):
            tuner = tune.Tuner.restore(experiment, trainable, resume_unfinished=True, restart_errored=True)
        else:
            tuner = tune.Tuner(
                trainable,
                param_space={"setting": tune.grid_search(configs)},
                tune_config=tune.TuneConfig(
                    metric="validation_loss",
                    mode="min",
                    max_concurrent_trials=sweep.concurrent,
                    reuse_actors=True,
                    scheduler=ASHAScheduler(
                        time_attr="step",
                        max_t=sweep.steps,
                        grace_period=min(sweep.scheduler.grace_steps, sweep.steps),
                        reduction_factor=sweep.scheduler.reduction,
                    ),
                ),
                run_config=tune.RunConfig(
                    name="trials",
                    storage_path=str(storage),
                    verbose=0,
                    callbacks=[_progress_callback()],
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=1),
                    failure_config=tune.FailureConfig(max_failures=1),
                ),
            )
        logging.getLogger("ray.tune").setLevel(logging.ERROR)
        return tuner.fit()


def _progress_callback() -> Any:
    from ray import tune

    class Report(tune.Callback):
        """Hands every report, and the end of every trial, to the caller's progress function."""

        def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict, **info: Any) -> None:
            _tell("report", trials, trial, result)

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            _tell("end", trials, trial, trial.last_result)

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            _tell("error", trials, trial, trial.last_result)

    return Report()


def _tell(event: str, trials: list[Any], trial: Any, result: Mapping[str, Any]) -> None:
    if _progress is None:
        return
    ended = sum(other is not trial and other.is_finished() for other in trials) + (event != "report")
    metrics = {name: result[name] for name in METRICS if name in result}
    values = trial.config["setting"]["values"]
    _progress({"event": event, "trial": trial.config["setting"]["name"], "values": values, "ended": ended, **metrics})


def _results(grid: Any, steps: int) -> list[TrialResult]:
    trials = []
    for result in grid:
        setting = result.config["setting"]
        frame = result.metrics_dataframe
        reports = [] if frame is None else frame.drop_duplicates("step", keep="last").to_dict("records")
        reports = [{name: report[name] for name in METRICS if name in report} for report in reports]
        error = "" if result.error is None else _own_error(result.error)
        ended = bool(reports) and reports[-1]["step"] >= steps
        state = "failed" if error else "finished" if ended else "stopped"
        trials.append(TrialResult(setting["name"], setting["values"], state, tuple(reports), error))
    return sorted(trials, key=lambda trial: trial.name)


def _own_error(error: BaseException) -> str:
    """The last line of a trial's own traceback: Ray wraps the trial's exception in its own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
