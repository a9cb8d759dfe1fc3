"""Runs a sweep: plans its settings, sees that they fit on the cluster, trains them, and writes the results.

<output>/sweep.yaml      the resolved recipe of the sweep, written first, and the commands that trained (its attempts)
<output>/journal.jsonl   every event, from which all else is made; see train/sweep/control/history.py
<output>/trials/         checkpoints of the trials that go on or have finished
<output>/ray/            what Ray writes, never read again and removed at the end
<output>/...             the results, see train/sweep/results/tables.py; sweep.csv is written last
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.local_files import lock, write_atomically
from tokenfree.preprocess.common.settings import fingerprint, to_mapping
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.dataset.manifest import Manifest, load_manifest
from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.train.machine.provenance import attempt
from tokenfree.train.runs.folder_hashes import rewritten, write_hashes
from tokenfree.train.sweep.control.controller import Progress, SweepController
from tokenfree.train.sweep.control.history import History
from tokenfree.train.sweep.control.placement import Needs, Node, Placement, place
from tokenfree.train.sweep.control.proposals import Plan, Proposer, plan
from tokenfree.train.sweep.control.sweep_files import SWEEP_FILE
from tokenfree.train.sweep.results.compare import best
from tokenfree.train.sweep.results.tables import read, write
from tokenfree.train.sweep.results.trial_result import TrialResult, trial_results
from tokenfree.train.sweep.space.knobs import Values
from tokenfree.train.sweep.space.recipe import SweepRecipe, check_space
from tokenfree.train.sweep.space.targets import LOSS, SPEED, Target, objectives

SWEEP = "sweep.yaml"
_OPERATIONAL = frozenset({"concurrent"})  # may differ when a sweep goes on


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to.

    Attributes:
        trials: all of them.
        best: the first trial of the best setting; None where no trial came to anything.
        skipped: how many settings were passed over because they cannot be run, by reason.
        files: that were written.
        already_complete: whether it had ended before, so that nothing was trained.
    """

    trials: tuple[TrialResult, ...]
    best: TrialResult | None
    skipped: Mapping[str, int]
    files: tuple[Path, ...]
    already_complete: bool = False


def prepare(sweep: SweepRecipe, data: str) -> tuple[Proposer, Plan]:
    """Check the sweep against the data and plan its settings.

    Raises:
        UserError: the space and the data do not fit together, or too few settings can be run.
    """
    manifest = load_manifest(data)
    check_space(sweep)
    proposer = Proposer(sweep, manifest, load_vocabulary(data))
    return proposer, plan(proposer)


def cluster_nodes() -> list[Node]:
    """The machines of the cluster that Ray is connected to."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(resources.get("CPU", 0.0), resources.get("GPU", 0.0)) for resources in alive]


def find_placement(sweep: SweepRecipe, settings: Sequence[Values], nodes: Sequence[Node]) -> Placement:
    """Room for trials of these settings on `nodes`.

    Raises:
        UserError: a trial can never fit.
    """
    gpus = sweep.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if any(node.gpus for node in nodes) else 0.0
    threads = [sweep.recipe(values).train.threads or 1 for values in settings]
    return place(Needs(sweep.workers, max(threads), gpus), nodes, sweep.concurrent)


def run_sweep(sweep: SweepRecipe, data: str, output: str, *, progress: Progress | None = None) -> SweepResult:
    """Run the sweep on the data directory `data` into the folder `output`, or go on where it was killed.

    `progress` hears of every event from now on, with all that is known after it; of a sweep that goes on first, before
    anything starts, of `resume`, which is in no journal. What is returned and written is made from the journal alone.

    Raises:
        UserError: the space, the data, the cluster and the output do not fit together.
        JobError: every trial failed; the first one's own error is in the message.
    """
    data = data if "://" in data else os.path.abspath(data)
    if "://" in output:
        raise UserError(f"--output {output}: a sweep needs a folder that all workers can lock and rename in; mount it")
    proposer, planned = prepare(sweep, data)
    folder = Path(output).absolute()
    _claim(folder, sweep, proposer.manifest)
    held = UserError(f"{output} is being run by another command; wait for it or give another --output")
    with lock(folder / "lock", seconds=0, held=held):
        history, ended_before = read(folder, seeds=sweep.seeds, reports=sweep.reports)
        if history.trials and not ended_before and progress is not None:
            progress({"event": "resume"}, history)
        if not ended_before:
            _add_attempt(folder / SWEEP)
            history = _run(proposer, planned, data, folder, progress)
        trials, skipped = trial_results(history), history.reasons()
        files = write(folder, sweep, trials, skipped=skipped, unit=sweep.budget.unit, targets=targets(sweep))
        if ended_before:
            rewritten(output, [file.name for file in files])
        else:
            write_hashes(output)
    if all(trial.state == "failed" for trial in trials):
        raise JobError(f"all {len(trials)} trials failed; {trials[0].name}: {trials[0].error}")
    winner = best(trials, target=targets(sweep)[0], unit=sweep.budget.unit)
    return SweepResult(tuple(trials), winner, skipped, tuple(files), ended_before)


def targets(sweep: SweepRecipe) -> tuple[Target, ...]:
    """What settings are chosen by, the first first: the sweep's objectives, then the other one for the front."""
    return tuple(dict.fromkeys((*objectives(sweep.objectives), LOSS, SPEED)))


def _run(proposer: Proposer, planned: Plan, data: str, folder: Path, progress: Progress | None) -> History:
    from tokenfree.train.ray.environment import TUNE_LOGGERS, ray_environment  # Ray takes seconds to import
    from tokenfree.train.ray.session import ray_session
    from tokenfree.train.sweep.trials.ray_tune import run_segments

    storage = folder / "ray"
    shutil.rmtree(storage, ignore_errors=True)
    with ray_environment(mute=TUNE_LOGGERS), ray_session():
        placement = find_placement(proposer.sweep, planned.settings, cluster_nodes())
        controller = SweepController(proposer, planned, folder, placement.concurrent, progress)
        try:
            controller.start()
            run_segments(controller, placement, data, storage)
        finally:
            controller.close()
    if not controller.history.all_ended:
        raise JobError(
            "Ray Tune ended before the trials; run the same command again: it goes on where this one stopped"
        )
    shutil.rmtree(storage, ignore_errors=True)
    return controller.history


def _claim(folder: Path, sweep: SweepRecipe, manifest: Manifest) -> None:
    """Write the sweep's settings into its folder; refuse a folder that holds another sweep."""
    mapping = {key: value for key, value in asdict(sweep).items() if key not in _OPERATIONAL}
    marks = {"sweep": fingerprint(mapping), "data": manifest.fingerprint}
    path = folder / SWEEP
    if path.exists():
        old = SWEEP_FILE.yaml(Storage.at(str(folder)), SWEEP).get("fingerprints")
        if old != marks:
            differs = "the recipe" if old and old["data"] == marks["data"] else "the data"
            raise UserError(f"{folder}: holds another sweep ({differs} differs); choose another --output or remove it")
        return
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty and holds no sweep; choose another --output")
    text = yaml.safe_dump({"fingerprints": marks, "recipe": to_mapping(sweep)}, sort_keys=False)
    Storage.at(str(folder)).write_bytes(path.name, text.encode())


def _add_attempt(path: Path) -> None:
    """Add this command to those that trained the sweep of a sweep.yaml."""
    mapping = SWEEP_FILE.yaml(Storage.at(str(path.parent)), path.name)
    attempts = [*(mapping.get("attempts") or ()), attempt()]
    write_atomically(path, yaml.safe_dump({**mapping, "attempts": attempts}, sort_keys=False))
