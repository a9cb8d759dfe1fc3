"""Jobs that are killed again and again until they come to their end, which is that of an undisturbed one."""

from __future__ import annotations

from benchmarks.fuzz.faults import Fault
from benchmarks.fuzz.judges import expect, judge_losses, judge_shards
from benchmarks.fuzz.originals import BOOKS, DUMPS, PREPROCESS, SWEEP
from benchmarks.fuzz.rounds.context import Round

MOST_KILLS = 4  # of a job; then it is left alone
RAY_SECONDS = 25.0  # of a start of Ray and two workers, on a busy machine
RAY_LIMIT = 420.0


def preprocess(round_: Round) -> None:
    """Preprocessing, killed at changes of names and at random moments: the same bytes."""
    round_.take(round_.originals.inputs)
    command = ("preprocess", *BOOKS, *DUMPS, "--output", "data", *PREPROCESS)
    for _ in range(round_.draw.randint(1, MOST_KILLS)):
        fault = round_.fault(round_.originals.changes("data"), round_.originals.seconds("data"))
        if not round_.command(*command, fault=fault).was_killed:
            break
    expect(round_.command(*command).status == 0, "does not end after kills")
    judge_shards(round_.folder / "data", round_.originals.shards)
    expect(round_.command("verify", "data").status == 0, "verify refuses what a killed job has written")


def preprocess_workers(round_: Round) -> None:
    """The same with two workers, of which one may be killed alone: then the job goes on by itself."""
    round_.take(round_.originals.inputs)
    command = ("preprocess", *BOOKS, *DUMPS, "--output", "data", *PREPROCESS, "--workers", "2")
    victim = round_.draw.choice(("group", "process", "worker"))
    if round_.draw.random() < 0.5:
        fault = Fault(change=round_.draw.randint(1, round_.originals.changes("data")), victim=victim)
    else:
        fault = Fault(seconds=round_.draw.uniform(2.0, 8.0), victim=victim)
    outcome = round_.command(*command, fault=fault, is_fresh=True)
    if outcome.was_killed or outcome.status != 0:  # workers that die twice in vain end the job, in a line
        expect(round_.command(*command, is_fresh=True).status == 0, "does not end after a kill")
    judge_shards(round_.folder / "data", round_.originals.shards)


def pretrain(round_: Round) -> None:
    """Pretraining, killed at changes of names and at random moments: the same losses."""
    recipe = round_.recipe()
    original = round_.originals.run(recipe)
    round_.take(round_.originals.data)
    round_.take(round_.originals.inputs / f"{recipe}.yaml")
    command = ("pretrain", f"{recipe}.yaml", "--data", "data", "--output", "run")
    for _ in range(round_.draw.randint(1, MOST_KILLS)):
        fault = round_.fault(round_.originals.changes(original.name), round_.originals.seconds(original.name))
        if not round_.command(*command, fault=fault).was_killed:
            break
    expect(round_.command(*command).status == 0, "does not end after kills")
    judge_losses(round_.folder / "run", *round_.originals.losses(recipe))
    begun = list((round_.folder / "run" / "checkpoints").glob("_*"))
    expect(not begun, f"left over: {begun}")


def pretrain_workers(round_: Round) -> None:
    """Two workers of Ray: one of its processes is killed, or all; training ends, and its losses do not break off."""
    round_.take(round_.originals.data)
    round_.take(round_.originals.inputs / "canine.yaml")
    command = ("pretrain", "canine.yaml", "--data", "data", "--output", "run", "--workers", "2")
    victim = round_.draw.choice(("group", "process", "worker", "worker"))
    if victim != "worker" and round_.draw.random() < 0.5:
        fault = Fault(change=round_.draw.randint(1, 60), victim=victim)
    else:
        fault = Fault(seconds=round_.draw.uniform(1.0, RAY_SECONDS), victim=victim)
    outcome = round_.command(*command, fault=fault, is_fresh=True, limit=RAY_LIMIT)
    if outcome.was_killed or outcome.status != 0:
        outcome = round_.command(*command, is_fresh=True, limit=RAY_LIMIT)
    expect(outcome.status == 0, "does not end after a kill")
    wanted, _ = round_.originals.losses("canine")
    lines = (round_.folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").count("\n")
    expect(lines == len(wanted), f"{lines} lines of metrics in place of {len(wanted)}")


def sweep(round_: Round) -> None:
    """A sweep is killed, or one process of it: it ends with all its trials, and leaves nothing of Ray behind."""
    round_.take(round_.originals.data)
    round_.take(round_.originals.inputs / "sweep.yaml")
    command = ("sweep", "sweep.yaml", "--data", "data", "--output", "sweep")
    fault = Fault(seconds=round_.draw.uniform(1.0, 2 * RAY_SECONDS), victim=round_.draw.choice(("group", "worker")))
    outcome = round_.command(*command, fault=fault, is_fresh=True, limit=RAY_LIMIT)
    if outcome.was_killed or outcome.status != 0:
        outcome = round_.command(*command, is_fresh=True, limit=RAY_LIMIT)
    expect(outcome.status == 0, "does not end after a kill")
    rows = (round_.folder / "sweep" / "sweep.csv").read_text(encoding="utf-8").splitlines()[1:]
    expect(len(rows) == SWEEP["trials"], f"{len(rows)} trials in place of {SWEEP['trials']}")
