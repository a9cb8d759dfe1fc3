"""Run a sweep: plan its settings, check that they fit on the cluster, train them and write the results.

<output>/sweep.yaml      the resolved recipe of the sweep, written first, and the commands that trained (its
attempts) <output>/journal.jsonl   every event, from which all else is made; see train/sweep/history.py
<output>/trials/         checkpoints of the trials that continue or have finished <output>/ray/
files of Ray, never read again and removed at the end <output>/standard_error.txt   standard error of Ray
after a part of it was lost <output>/result.json     of a task: the scores of all settings, and of the best
one on the test set <output>/...             the results, see train/sweep/results.py; sweep.csv is written
last
"""

import json
import logging
import pickle
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from tqdm import tqdm

from tokenfree.core import own_code
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import AnyPath, absolute_path, expand_home, is_half_written, lock, write_atomically
from tokenfree.core.settings import OPERATIONAL, build, marked_keys, merge
from tokenfree.core.settings_values import fingerprint, to_mapping
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import HASHES, check_finished
from tokenfree.preprocess.dataset.manifest import MODEL
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import as_data
from tokenfree.train.finetune import finetune
from tokenfree.train.intervals import mean_interval
from tokenfree.train.ray.child import RayChild
from tokenfree.train.runs.config import InitFrom, RunConfig
from tokenfree.train.runs.formats import SWEEP_FORMAT
from tokenfree.train.runs.hashes import write_hashes
from tokenfree.train.runs.provenance import attempt
from tokenfree.train.runs.run import Run
from tokenfree.train.sweep.history import (
    RAY,
    SCORES,
    SWEEP_FILE,
    TABLE,
    Event,
    History,
    TrialState,
    read_history,
)
from tokenfree.train.sweep.recipe import SweepRecipe, check_space
from tokenfree.train.sweep.results import RESULTS, best, rank, settings, write
from tokenfree.train.sweep.search import Progress, Proposer, plan
from tokenfree.train.sweep.subjects import FinetuningSubject, Subject, TaskInput, open_subject
from tokenfree.train.tasks.metrics import FIELDS
from tokenfree.train.torch_state import default_settings

SWEEP = "sweep.yaml"
ERRORS = "standard_error.txt"  # standard error of Ray after a part of it was lost
# By name, because importing Ray takes seconds.
_LEADER = "tokenfree.train.sweep.tune:run_trials"
logger = logging.getLogger("tokenfree")


@dataclass(frozen=True)
class SweepResult:
    """Results of a sweep. `best` is the first trial of the best setting; None if no trial has a result.

    `skipped` is the number of settings that cannot be run, by reason. `already_complete` means that nothing
    was trained.
    """

    trials: tuple[TrialState, ...]
    best: TrialState | None
    skipped: Mapping[str, int]
    files: tuple[Path, ...]
    already_complete: bool = False


def prepare(sweep: SweepRecipe, data: Data | TaskInput, output: str) -> tuple[Proposer, History]:
    """Plan the settings of a sweep, and complete its recipes. Raises UserError if too few fit the data."""
    check_finished(output)
    check_space(sweep)
    sweep, subject = open_subject(sweep, data, output)
    proposer = Proposer(sweep, subject)
    return proposer, plan(proposer)


@default_settings()
def run_sweep(
    sweep: SweepRecipe,
    data: Data | AnyPath | Sequence[AnyPath] | TaskInput,
    output: AnyPath,
    *,
    progress: Progress | None = None,
    trust_code: bool = False,
) -> SweepResult:
    """Run the sweep on data directories, or on the files of a task, into the folder `output`, or resume it.

    `progress` is called with every new event and the state, which later events change. One event is not in
    the journal: `lost`, when Ray is restarted. With `trust_code`, code outside tokenfree that the recipes
    name is run. Raises UserError if the search space, the data, the cluster and the output do not fit
    together, and JobError with the first error if every trial failed, or if the sweep has ended and a file of
    it is damaged.
    """
    data, output = data if isinstance(data, TaskInput) else as_data(data), expand_home(output)
    if "://" in output:
        raise UserError(
            f"--output {output}: a sweep needs a folder that all workers can lock and rename in; mount it"
        )
    with own_code.trusting(trust_code or (isinstance(data, TaskInput) and data.trust_code), "the sweep"):
        return _run_trusted(sweep, data, output, progress)


def _run_trusted(
    sweep: SweepRecipe, data: Data | TaskInput, output: str, progress: Progress | None
) -> SweepResult:
    proposer, planned = prepare(sweep, data, output)
    inputs = {**proposer.subject.inputs, "overrides": sweep.overrides}
    if isinstance(data, TaskInput) and data.vocabulary is not None:
        inputs["vocabulary"] = absolute_path(data.vocabulary)
    sweep, subject = proposer.sweep, proposer.subject
    folder = Path(output).absolute()
    _claim(folder, sweep, subject)
    held = UserError(f"{output} is being run by another command; wait for it or give another --output")
    with lock(folder / "lock", seconds=0, held=held):
        # Another command may have started a sweep there in the meantime.
        _claim(folder, sweep, subject)
        history = read_history(folder, seeds=sweep.seeds, reports=sweep.reports, target=sweep.quality)
        ended_before = (folder / TABLE).is_file()
        if not ended_before:
            settled = SWEEP_FILE.yaml(Storage.at(str(folder)), SWEEP)
            recorded = {
                **settled,
                "inputs": inputs,
                "attempts": [*(settled.get("attempts") or ()), attempt()],
            }
            write_atomically(folder / SWEEP, yaml.safe_dump(recorded, sort_keys=False))
            history = _run(proposer, planned, folder, progress)
        trials, skipped = tuple(history.trials.values()), history.reasons()
        if not ended_before:
            if isinstance(subject, FinetuningSubject):
                evaluate_chosen(sweep, subject, trials, folder)
            write(folder, sweep, trials, skipped)
        if not (folder / HASHES).is_file():
            write_hashes(output)
    if all(trial.state == "failed" for trial in trials):
        raise JobError(f"no trial succeeded; {trials[0].name}: {trials[0].error}")
    winner = best(trials, target=sweep.target, unit=sweep.budget.unit)
    files = tuple(folder / name for name in (SCORES, *RESULTS) if (folder / name).is_file())
    return SweepResult(trials, winner, skipped, files, ended_before)


def _run(proposer: Proposer, planned: History, folder: Path, progress: Progress | None) -> History:
    sweep = proposer.sweep
    load_history = partial(
        read_history, folder, seeds=sweep.seeds, reports=sweep.reports, target=sweep.quality
    )
    history, storage, plans = load_history(), folder / RAY, pickle.dumps((proposer, planned))

    # For notebooks.
    bar = tqdm(total=planned.num_settings * sweep.seeds, unit="trial", disable="ipykernel" not in sys.modules)

    def take(event: Event) -> None:
        history.record(event)
        if event["event"] == "report":
            report, metric = event["report"], sweep.quality.metric
            place = f"{event['trial']}: report {report['report']} of {sweep.reports}"
            logger.info("%s: %s %s", place, metric, report.get(metric))
        bar.update(len(history.ended) - bar.n)
        if progress is not None:
            progress(event, history)

    child = RayChild(
        _LEADER, take=take, keep=lambda errors: shutil.copy(errors, folder / ERRORS), stops=False
    )
    for attempts_left in reversed(range(sweep.recipe({}).train.max_restarts + 1)):
        shutil.rmtree(storage, ignore_errors=True)
        loss = child.call(plans, str(folder))
        history = load_history()
        if loss is None or history.all_ended:
            break
        if not loss.is_ours or not attempts_left:
            raise loss.final("where this one stopped")
        if progress is not None:
            progress(
                {"event": "lost", "message": f"{loss.words}; starting Ray and the trials again"}, history
            )
    bar.close()
    shutil.rmtree(storage, ignore_errors=True)
    if not history.all_ended:
        raise JobError("Ray Tune ended before the trials; run the same command again: it resumes the sweep")
    return history


def _claim(folder: Path, sweep: SweepRecipe, subject: Subject) -> None:
    """Write the sweep's settings into its folder.

    Raises UserError if it holds another sweep or other files.
    """
    operational = set(marked_keys(sweep, OPERATIONAL))
    mapping = {key: value for key, value in asdict(sweep).items() if key not in operational}
    marks = {"sweep": fingerprint(mapping), "data": subject.content}
    path = folder / SWEEP
    if path.exists():
        old = SWEEP_FILE.yaml(Storage.at(str(folder)), SWEEP).get("fingerprints")
        if old != marks:
            differs = "the recipe" if old and old.get("data") == marks["data"] else "the data"
            raise UserError(
                f"{folder}: holds another sweep ({differs} differs); choose another --output or remove it"
            )
        return
    if folder.exists() and not all(map(is_half_written, folder.iterdir())):
        raise UserError(f"{folder}: is not empty and holds no sweep; choose another --output")
    content = {"format": SWEEP_FORMAT, "fingerprints": marks, "recipe": to_mapping(sweep)}
    text = yaml.safe_dump(content, sort_keys=False)
    Storage.at(str(folder)).write_bytes(path.name, text.encode())


def read_sweep(folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the recipe of a sweep and its inputs, by the names of the command's options, as they were given.

    Raises UserError if the sweep records no inputs, because no command made it.
    """
    check_finished(folder, SWEEP.__eq__)
    mapping = SWEEP_FILE.yaml(Storage.at(folder), SWEEP)
    inputs = dict(mapping.get("inputs", {}))
    if not inputs:
        raise UserError(f"{folder}/{SWEEP} records no inputs. Run the command that started the sweep again.")
    return {**mapping["recipe"], "overrides": inputs.pop("overrides")}, inputs


def evaluate_chosen(
    sweep: SweepRecipe, subject: FinetuningSubject, trials: Sequence[TrialState], folder: Path
) -> None:
    """Evaluate the runs of the best setting on the test set and write result.json.

    Do nothing if no trial has a result. Each run is then the same as one of `tokenfree finetune`. Evaluations
    of an earlier, killed command are kept.
    """
    ranked = rank(trials, target=sweep.quality, unit=sweep.budget.unit)
    if not ranked:
        return
    chosen, amount, unit = ranked[0].setting, ranked[0].amount, ranked[0].unit
    runs = [trial for trial, _ in chosen.reached(sweep.quality.metric, amount, unit)]
    results = list[dict[str, Any]]()
    # Those of the first run; the files of the others are the same.
    baselines: dict[str, Any] | None = None
    for trial in runs:
        results.append(_evaluated(sweep, subject, trial, folder / "trials" / trial.name, baselines))
        baselines = {name: results[0][name] for name in FIELDS if name in results[0]}
    # The main score is the first.
    metric = next(iter(results[0]["dev"]))
    splits = [split for split in ("dev", "test") if split in results[0]]
    result = {
        "task": results[0]["task"],
        "metric": metric,
        "best": {
            "setting": chosen.index,
            "values": dict(chosen.values),
            "trials": [trial.name for trial in runs],
        },
        **{
            split: {name: fmean(values) for name, values in _scores(results, split).items()}
            for split in splits
        },
        **(baselines or {}),
        "settings": [
            {
                "setting": setting.index,
                "values": dict(setting.values),
                "dev": cell([value for _, value in setting.reached(sweep.quality.metric, amount, unit)]),
                "test": cell(
                    _scores(results, "test").get(metric, []) if setting.index == chosen.index else []
                ),
            }
            for setting in settings(trials)
        ],
    }
    write_atomically(folder / SCORES, json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def cell(values: Sequence[float]) -> dict[str, Any] | None:
    """Return the scores of seeds, their mean and, of several, half of its 95% interval.

    None if there are no scores.
    """
    interval = mean_interval(values)
    return (
        None
        if interval is None
        else {"mean": interval.mean, "interval": interval.half, "seeds": list(values)}
    )


def _scores(evaluations: Sequence[Mapping[str, Any]], split: str) -> dict[str, list[float]]:
    results = [result.get(split, {}) for result in evaluations]
    return {
        name: [scores[name] for scores in results]
        for name in results[0]
        if all(name in scores for scores in results)
    }


def _evaluated(
    sweep: SweepRecipe,
    subject: FinetuningSubject,
    trial: TrialState,
    folder: Path,
    baselines: Mapping[str, Any] | None,
) -> dict[str, Any]:
    run = Run(folder)
    result = run.result()
    if result is None:
        mapping = merge(
            to_mapping(sweep.recipe(trial.values, trial.seed)), {"train": {"steps": trial.last["step"]}}
        )
        recipe = build(FinetuneRecipe, mapping, source=trial.name)
        files = subject.files
        init_from = None if subject.init_from is None else InitFrom(subject.init_from, subject.sha256)
        run.write_config(RunConfig(recipe, files.paths.get("train", ""), files.content, init_from))
        if files.model is not None and recipe.model.embedder.symbols == "subwords":
            Storage.at(str(folder)).write_bytes(MODEL, files.model)
        # The run is trained already, so `finetune` only evaluates it.
        finetune(
            recipe,
            files.paths,
            str(folder),
            init_from=subject.init_from,
            trust_code=subject.trust_code,
            baselines=baselines,
        )
        result = run.result()
    assert result is not None, "a finished run has a result"
    return result
