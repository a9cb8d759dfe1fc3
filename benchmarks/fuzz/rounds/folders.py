"""Damaged files of folders that commands have made, finished ones and those that a kill has left."""

from __future__ import annotations

from pathlib import Path

from benchmarks.fuzz.damage import TORN, files_in
from benchmarks.fuzz.judges import expect, finding_of, judge_losses, judge_noticed, judge_shards
from benchmarks.fuzz.originals import BOOKS, DUMPS, PREPROCESS
from benchmarks.fuzz.rounds.context import Round

VERIFIED = 0.4  # share of the rounds that ask `verify`; the others try what reads the folder


def data(round_: Round) -> None:
    """A file of a data directory is damaged: `verify` names it, and nobody trains on other data without a word."""
    copy = round_.take(round_.originals.data)
    told = round_.damage(round_.draw.choice(_one_of_each(round_, copy)))
    if round_.draw.random() < VERIFIED:
        outcome = round_.command("verify", "data")
        if "_SUCCESS: emptied" in told and "hash" in outcome.out + outcome.err:  # as one of an earlier version
            return
        return judge_noticed(outcome, told)
    reader = round_.draw.choice(("pretrain", "pretrain", "inspect", "preprocess", "report", "evaluate", "replay"))
    if reader == "pretrain":
        recipe = round_.recipe()
        round_.take(round_.originals.inputs / f"{recipe}.yaml")
        if round_.command("pretrain", f"{recipe}.yaml", "--data", "data", "--output", "run").status == 0:
            judge_losses(round_.folder / "run", *round_.originals.losses(recipe))
    elif reader == "preprocess":
        round_.take(round_.originals.inputs)
        if round_.command("preprocess", *BOOKS, *DUMPS, "--output", "data", *PREPROCESS).status == 0:
            worse = finding_of(lambda: judge_shards(copy, round_.originals.shards))
            expect(not worse or round_.command("verify", "data").status != 0, f"called complete, but {worse}")
    elif reader == "evaluate":
        run = round_.take(round_.originals.run(round_.recipe()))
        round_.command("evaluate", run.name, "--data", "data")
    elif reader == "report":
        round_.command("report", "data", "--output", "report.html")
    else:
        round_.command(reader, "data")


def begun_data(round_: Round) -> None:
    """A job is killed, a file of what it left is damaged: the same command makes the same bytes, or says what to do."""
    round_.take(round_.originals.inputs)
    command = ("preprocess", *BOOKS, *DUMPS, "--output", "data", *PREPROCESS)
    fault = round_.fault(round_.originals.changes("data"), round_.originals.seconds("data"))
    round_.command(*command, fault=fault)
    left = files_in(round_.folder / "data") if (round_.folder / "data").exists() else []
    if left:
        round_.damage(round_.draw.choice(left))
    if round_.command(*command).status == 0:
        worse = finding_of(lambda: judge_shards(round_.folder / "data", round_.originals.shards))
        expect(not worse or round_.command("verify", "data").status != 0, f"done and verified, but {worse}")


def run(round_: Round) -> None:
    """A file of a finished run is damaged: `verify` names it, and readers say what is wrong or read all the same."""
    recipe = round_.recipe()
    copy = round_.take(round_.originals.run(recipe))
    round_.take(round_.originals.inputs / f"{recipe}.yaml")
    round_.take(round_.originals.data)
    told = round_.damage(round_.draw.choice(_one_of_each(round_, copy)))
    if round_.draw.random() < VERIFIED:
        return judge_noticed(round_.command("verify", copy.name), told)
    commands = {
        "pretrain": ("pretrain", f"{recipe}.yaml", "--data", "data", "--output", copy.name),
        "evaluate": ("evaluate", copy.name, "--data", "data"),
        "predict": ("predict", copy.name, "the [MASK] falls"),
        "report": ("report", copy.name, "--output", "report.html"),
        "export": ("export", copy.name, "--to", "huggingface", "exported"),
        "init": ("pretrain", f"{recipe}.yaml", "--data", "data", "--output", "next", "--init-from", copy.name),
        "extend": ("pretrain", f"{recipe}.yaml", "--data", "data", "--output", copy.name, "--extend-to", "15"),
    }
    round_.command(*commands[round_.draw.choice(list(commands))])


def begun_run(round_: Round) -> None:
    """A training is killed and a file of it damaged: it goes on with the same losses, or says what to do.

    Where the file is one of a checkpoint and another one is whole, it must go on.
    """
    recipe = round_.recipe()
    original = round_.originals.run(recipe)
    round_.take(round_.originals.data)
    round_.take(round_.originals.inputs / f"{recipe}.yaml")
    command = ("pretrain", f"{recipe}.yaml", "--data", "data", "--output", "run")
    fault = round_.fault(round_.originals.changes(original.name), round_.originals.seconds(original.name))
    round_.command(*command, fault=fault)
    left = [file for file in files_in(round_.folder / "run") if "tensorboard" not in file.parts]
    told = round_.damage(round_.draw.choice(left)) if left else "nothing"
    status = round_.command(*command).status
    name, _, what = told.partition(": ")
    is_torn = what.startswith(("cut to", f"{TORN!r} appended")) and name in ("run/metrics.jsonl", "run/events.jsonl")
    expect(status == 0 or not (is_torn or "/checkpoints/" in name), f"does not go on after {told}")
    if status == 0 and name != "run/metrics.jsonl":  # its earlier lines are nowhere else
        judge_losses(round_.folder / "run", *round_.originals.losses(recipe))


def sweep(round_: Round) -> None:
    """A file of a finished sweep is damaged."""
    copy = round_.take(round_.originals.sweep)
    round_.take(round_.originals.inputs / "sweep.yaml")
    round_.take(round_.originals.data)
    told = round_.damage(round_.draw.choice(_one_of_each(round_, copy)))
    if round_.draw.random() < VERIFIED:
        return judge_noticed(round_.command("verify", copy.name), told)
    if (copy / "sweep.csv").is_file() and round_.draw.random() < 0.4:  # else it trains, under Ray
        round_.command("sweep", "sweep.yaml", "--data", "data", "--output", copy.name, is_fresh=True)
    else:
        round_.command("report", copy.name, "--output", "report.html")


def _one_of_each(round_: Round, folder: Path) -> list[Path]:
    """A file of each name and folder: of many shards one, lest they be all that is drawn."""
    by_kind: dict[tuple[Path, str], list[Path]] = {}
    for file in files_in(folder):
        by_kind.setdefault((file.parent, file.suffix or file.name), []).append(file)
    return [round_.draw.choice(files) for files in by_kind.values()]
