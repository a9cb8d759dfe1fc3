"""The command line: help, overrides, and mistakes that end in one line with status 2."""

import argparse
import errno
import importlib
import json
import os
import pickle
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import REPOSITORY
from tokenfree.core.errors import JobError, UserError
from tokenfree.train.loop.worker import Stopped
from tokenfree.workflows import cli
from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.training import parse_workers
from tokenfree.workflows.work import pretrain

UNINSTALLED = """
import importlib.metadata as metadata, runpy
known = metadata.distribution
def distribution(name):
    if name == "tokenfree":
        raise metadata.PackageNotFoundError(name)
    return known(name)
metadata.distribution = distribution
runpy.run_module("tokenfree", run_name="__main__")
"""


@pytest.mark.parametrize("argument", ["--version", "verify"])
def test_a_checkout_that_is_not_installed(argument: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNINSTALLED, argument, *[str(tmp_path)] * (argument == "verify")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert "PackageNotFoundError" not in done.stderr
    assert done.stdout == "tokenfree unknown\n" if argument == "--version" else done.returncode == 2


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was written to standard error: one line, no traceback."""
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
    return error


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["cluster", "--help"],
        ["preprocess", "--help-keys"],
        # Which imports torch, compiled again as there are no files of it without docstrings.
        pytest.param(["pretrain", "--help-keys", "train"], marks=pytest.mark.slow),
    ],
)
def test_main_works_without_docstrings(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-OO", "-m", "tokenfree", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) > 5


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    names = cli.command_names()
    contract = {
        "demo",
        "preprocess",
        "inspect",
        "verify",
        "replay",
        "model",
        "pretrain",
        "sweep",
        "evaluate",
        "export",
        "import",
        "report",
        "doctor",
    }
    assert contract <= set(names)
    for name in names:
        with pytest.raises(SystemExit) as ended:
            cli.main([name, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert "xample" in shown, name
        assert f"tokenfree {name}" in shown, name


@pytest.mark.parametrize("name", cli.command_names())
def test_help_fits_80_columns_and_its_examples_stay_commands(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for parser in cli._leaves(cli._parser(cli._imported([name]))):
        text = parser.format_help()
        assert [line for line in text.splitlines() if len(line) > 80] == []
        examples = re.findall(r"^  tokenfree .*", parser.description or "", re.MULTILINE)
        assert examples
        for example in examples:
            assert shlex.split(example) in [
                shlex.split(line)
                for line in re.sub(r" \\\n *", " ", text).splitlines()
                if line.startswith("  tokenfree")
            ]


def test_no_command_shows_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "preprocess" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["preprocess", "--outptu", "x"], "--outptu (did you mean --output?)"),
        (["preprocess", "--output"], "expected one argument"),
        (
            ["pretrain", "canine-s-tiny", "--data", "d", "--output", "r", "--model.trunk.layers"],
            "needs a value",
        ),
        (["pretrain", "", "--data", "d", "--output", "r"], "RECIPE: the value is empty"),
        (
            ["pretrain", "canine-s-tiny", "--config", "", "--data", "d", "--output", "r"],
            "--config: the value is empty",
        ),
        (["pretrain", "canine-s-tinny", "--data", "d", "--output", "r"], "no recipe of that name"),
        (["pretrain", "canine-s-tiny", "--data", "nowhere", "--output", "r"], "nowhere"),
        (
            ["pretrain", "canine-s-tiny", "--data", "d", "--output", "r", "--modle.width", "3"],
            "--modle.width",
        ),
        (["verify", "nowhere"], "nowhere"),
        (["verify", "a::b"], "a::b: '::' in a path would stand for a chain of file systems"),
        (["pretrain", "canine-s-tiny", "--data", "a::b", "--output", "r"], "'::' in a path"),
        (["model", "/dev/zero"], "recipe /dev/zero: is not a file, but a folder, pipe or device"),
        (["verify", "x", "--", "--beam"], "nothing after '--'"),
        (["report", "nowhere", "--output", "r.html"], "nowhere"),
        (["preprocess", "enwiki.xml.bz2", "--output", "x"], "write --wikipedia enwiki.xml.bz2"),
        (["preprocess", "moby_dick.txt", "--output", "x"], "write --books moby_dick.txt"),
        (["preprocess", "--output", "x"], "nothing to read"),
        (
            ["preprocess", "--books", "x", "--output", "x", "--runner", "flink", "--profile", "ours.yaml"],
            "--profile ours.yaml: names the runner too; leave out --runner flink",
        ),
        (
            ["preprocess", "--books", "d", "--output", "x", "--columns", "text,codepoints"],
            "a list such as [a, b]",
        ),
        (["preprocess", "--hf-dataset", "s3://geese", "--output", "x"], "s3://geese is an address"),
        (["frobnicate"], "no command 'frobnicate' (known: analyze, cluster,"),
        (["pretrian", "canine-s-tiny"], "no command 'pretrian' (did you mean 'pretrain'?)"),
        (["train"], "(did you mean 'pretrain'?)"),
        (
            ["sweep", "canine-s-tiny", "--data", "d", "--output", "r"],
            "a pretraining recipe, where a sweep recipe is",
        ),
        (["pretrain", "ms-alpha-tiny", "--data", "d", "--output", "r"], "run tokenfree sweep ms-alpha-tiny"),
        (["model", "wikipedia"], "run tokenfree preprocess wikipedia"),
        (["preprocess", "canine-s-tiny", "--output", "r"], "run tokenfree pretrain canine-s-tiny"),
        (
            ["sweep", "three-knobs-tiny", "--data", "d", "--output", "r", "--base", "ms-alpha-tiny"],
            "ms-alpha-tiny: a sweep recipe, which cannot be inside a sweep",
        ),
        (["doctor", "three-knobs-tiny"], "run tokenfree sweep three-knobs-tiny"),
        (["pretrain", "canine-s-tiny", "--output", "r", "--steps", "40"], "did you mean --train.steps?"),
        (["pretrain", "--help-keys", "model.downsmapler"], "did you mean model.downsampler?"),
        (["sweep", "--help-keys=zzz"], "no key begins with 'zzz'"),
        (["preprocess", "--output", "x", "--chek_inputs"], "did you mean --check-inputs?"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    argv: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = cli.main(argv)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert words in one_line(capsys)
    assert not list(tmp_path.iterdir())


FIELDS = {
    "pretrain": [
        "canine-s-tiny",
        "--data",
        "nowhere",
        "--output",
        "r",
        "--train.streams",
        "3",
        "--workers",
        "x",
    ],
    "model": ["canine-s-tiny", "--train.length", "99999"],
    "sweep": ["three-knobs-tiny", "--data", "d", "--output", "r", "--space", "{model.widht: {choice: [1]}}"],
    "preprocess": ["--output", "r"],
}
WRONG = {
    "pretrain": (
        ["--model.width", "wide", "--train.stpes=5"],
        ["there is no key 'train.stpes'", "model.width:"],
    ),
    "model": (["--train.seed", "x", "--train.steps", "y"], ["train.steps:", "train.seed:"]),
    "sweep": (["--trials", "0", "--seeds", "x"], ["trials:", "seeds:"]),
    "preprocess": (["--seed", "x", "--shards", "y"], ["shards:", "seed:"]),
}


@pytest.mark.parametrize("command", FIELDS)
def test_all_problems_of_fields_are_a_line_each(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They come before what only shows between fields, data and workers."""
    wrong, starts = WRONG[command]
    assert cli.main([command, *FIELDS[command], *wrong]) == 2
    heading, *problems = capsys.readouterr().err.splitlines()
    assert heading.endswith(": 2 problems")
    assert sorted(problem[2:].split(" (")[0].split(" should")[0] for problem in problems) == sorted(starts)


def test_all_problems_between_fields_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["model", "canine-s-tiny", "--train.length", "99999", "--model.trunk.heads", "5"]) == 2
    heading, *problems = capsys.readouterr().err.splitlines()
    assert heading == "tokenfree: recipe canine-s-tiny: 2 problems"
    assert [problem.split(":")[0] for problem in problems] == [
        "  model.trunk.heads",
        "  model.embedder.max_characters",
    ]


def test_options_are_taken_with_dashes_and_underscores(capsys: pytest.CaptureFixture[str]) -> None:
    for spelled in ("--hf-dataset", "--hf_dataset"):
        assert (
            cli.main(
                ["preprocess", "--output", "x", "--check_inputs", "--check-inputs", spelled, "s3://geese"]
            )
            == 2
        )
        assert "s3://geese is an address" in one_line(capsys)
    for spelled in ("--train.learning-rate", "--train.learning_rate"):
        assert cli.main(["model", "canine-s-tiny", spelled, "fast"]) == 2
        assert "train.learning_rate: should be a valid number, not 'fast'" in one_line(capsys)


def test_inputs_given_twice_are_all_read(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--wikipedia", "--books", "--hf-dataset"):
        twice = [option, "s3a://ants", option, "s3a://geese"]
        assert cli.main(["preprocess", "--output", "x", *twice]) == 2
        assert "s3a://ants" in one_line(capsys)


def test_help_fills_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in cli.command_names():
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if len(line) > 80 and not line.startswith("  tokenfree ")] == [], name


def test_help_shows_options_with_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.command_names():
        actions = cli._actions(cli._parser(cli._imported([name])))
        assert [option for action in actions for option in action.option_strings if "_" in option] == [], name


@pytest.mark.parametrize("command", ["pretrain", "model", "sweep", "preprocess", "import"])
def test_help_keys_lists_a_key_a_line_in_a_pipe(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help-keys"])
    assert ended.value.code == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert {len(row) for row in rows} == {5}
    assert len(rows) > 20
    assert all(row[0] and row[2] and row[3] and row[4] for row in rows)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("wrong"), 2),
        (JobError("broke"), 1),
        (PermissionError(13, "Permission denied", "x"), 2),
        (KeyError("k"), 1),
    ],
)
def test_errors_become_one_line(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr("tokenfree.workflows.work.verify.run", fail)
    assert cli.main(["verify", "x"]) == status
    one_line(capsys)
    assert cli.main(["verify", "x", "--debug"]) == status
    assert "Traceback" in capsys.readouterr().err


def test_workers() -> None:
    assert parse_workers("4") == (4, 4)
    assert parse_workers("2:8") == (2, 8)
    for wrong in ("0", "3:2", "x", "2:"):
        with pytest.raises(UserError, match="--workers"):
            parse_workers(wrong)


def test_model_and_doctor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["model", "canine-s-tiny", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == sum(part["parameters"] for part in found["parts"]) > 10**6
    assert found["memory_bytes"]["total"] == sum(v for k, v in found["memory_bytes"].items() if k != "total")
    assert (found["length"], found["examples"]) == (240, 32)
    assert found["bfloat16_speed"] > 0
    status = cli.main(["doctor", "canine-s-tiny", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert status == (1 if found["missing"] else 0)
    checked = {finding["what"] for finding in found["findings"]}
    assert {"python", "torch", "memory of canine-s-tiny", "precision of canine-s-tiny"} <= checked


def test_verify_as_json_says_what_is_wrong(capsys: pytest.CaptureFixture[str],
                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    def verify(directory: str) -> None:
        raise JobError(f"{directory}: row 7 is damaged")

    monkeypatch.setattr("tokenfree.workflows.work.verify.load_manifest", lambda _: SimpleNamespace(splits={}))
    monkeypatch.setattr("tokenfree.workflows.work.verify.verify", verify)
    assert cli.main(["verify", "data/en", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"good": False, "problem": "data/en: row 7 is damaged"}
    assert cli.main(["verify", "data/en"]) == 1
    assert one_line(capsys) == "tokenfree: data/en: row 7 is damaged\n"


@pytest.mark.parametrize(
    "error",
    [MemoryError(), ImportError("libtorch_cpu.so: failed to map segment from shared object"),
     RuntimeError("can't start new thread"), OSError(errno.ENOMEM, "Cannot allocate memory"),
     RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried\nmore"),
     RuntimeError("CUDA error: out of memory"), ValueError("pthread: failed to allocate a stack"),
     OSError(errno.EAGAIN, "Resource temporarily unavailable")],
)  # fmt: skip
def test_what_a_limit_refuses_is_one_line(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(importlib.import_module("tokenfree.workflows.commands.completion"), "run", run)
    assert cli.main(["completion", "bash"]) == 1
    line = one_line(capsys)
    assert "lift the limit (ulimit -a), or make" in line
    assert "unexpected" not in line


def test_a_million_workers(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["preprocess", "--books", "x.txt", "--output", "o", "--workers", "1000000"]) == 2
    assert "--workers: 1,000,000 is too many" in one_line(capsys)


def filled(action: argparse.Action, value: str) -> list[str]:
    return [*action.option_strings[:1], value]


@pytest.mark.parametrize("command", cli.command_names())
def test_an_empty_value_of_any_argument_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"tokenfree.workflows.commands.{command}")
    for leaf in cli._leaves(cli._parser({command: module})):  # the actions of a command that has some
        name = leaf.prog.split()[2:]
        takes = [action for action in leaf._actions if action.nargs != 0]
        chosen = [group._group_actions[0] for group in leaf._mutually_exclusive_groups if group.required]
        for action in takes:
            if (
                type(action) is not argparse._StoreAction
                or action.type
                or action.choices
                or action.metavar == "TEXT"
            ):
                continue
            given = [filled(each, "" if each is action else next(iter(each.choices or ["1"]))) for each in takes
                     if each.required or each is action or each in chosen]  # fmt: skip
            assert cli.main([command, *name, *(part for parts in given for part in parts)]) == 2
            assert ": the value is empty; give one" in capsys.readouterr().err


NOT_PATHS = {
    *(
        "ACTION",
        "ANALYSIS",
        "COMMAND",
        "FORMAT",
        "JOB",
        "LANGUAGE_OR_WIKI",
        "M",
        "N",
        "N | MIN:MAX",
        "NAME",
        "P",
    ),
    *("PREFIX", "RUNNER", "SHELL", "STEPS", "TEXT", "X", "YYYYMMDD"),
}


def test_home_folders_are_expanded_in_every_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/goose")
    actions = cli._actions(cli._parser(cli._imported(cli.command_names())))
    metavars = {action.metavar for action in actions if action.nargs != 0 and not action.choices}
    assert metavars - {None} == {*options.PATHS, *NOT_PATHS} & metavars, (
        "a new one is listed here or in PATHS"
    )
    for action in actions:
        is_path = action.metavar in options.PATHS
        for given, whole in (("~/a", "/home/goose/a"), (["~/a", "./~"], ["/home/goose/a", "./~"])):
            args = argparse.Namespace(**{action.dest: given})
            cli._complete_paths([action], args)
            assert getattr(args, action.dest) == (whole if is_path else given)


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 129, "stopped by SIGHUP"),
        (signal.SIGUSR1, 138, "stopped by SIGUSR1"),
        (signal.SIGUSR2, 140, "stopped by SIGUSR2"),
        (signal.SIGXCPU, 152, "stopped by SIGXCPU"),
    ],
)
def test_a_command_that_is_told_to_end_says_so_in_a_line(
    sent: signal.Signals,
    status: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left: list[str] = []

    def run(args: argparse.Namespace) -> int:
        try:
            os.kill(os.getpid(), sent)
            time.sleep(60)
        finally:
            left.append("cleaned up")
        return 0

    before = signal.getsignal(sent)
    monkeypatch.setattr(pretrain, "run", run)
    assert cli.main(["pretrain", "canine-s-tiny", "--data", "x", "--output", "y"]) == status
    assert capsys.readouterr().err.strip() == f"tokenfree: {words}; run the same command again to resume"
    assert left == ["cleaned up"]
    assert signal.getsignal(sent) == before


def test_main_returns_the_signal_that_stopped_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: argparse.Namespace) -> int:
        raise pickle.loads(pickle.dumps(Stopped("SIGUSR1", 7, False)))  # as it comes from a worker

    monkeypatch.setattr(pretrain, "run", run)
    assert cli.main(["pretrain", "canine-s-tiny", "--data", "x", "--output", "y"]) == 138
    assert one_line(capsys) == "tokenfree: stopped by SIGUSR1 after step 7; the same command resumes it\n"
