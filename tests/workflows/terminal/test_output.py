"""`-q` and `-v` mean the same for all commands, and for all that shows progress."""

import argparse
import io
import logging
from collections.abc import Callable, Iterator

import pytest

from tests.workflows.terminal.conftest import Terminal
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.train.sweep.history import History
from tokenfree.workflows import cli
from tokenfree.workflows.terminal.output import Verbosity
from tokenfree.workflows.terminal.progress import LiveLine
from tokenfree.workflows.terminal.results import show_settings
from tokenfree.workflows.terminal.sweep import SweepTable

pytestmark = pytest.mark.usefixtures("resize")
LIBRARY = "apache_beam.of_the_tests"


@pytest.fixture
def logs() -> Iterator[None]:
    """Gives the loggers back as they were."""
    loggers = [logging.getLogger(name) for name in (None, "apache_beam", "huggingface_hub")]
    levels, handlers = [logger.level for logger in loggers], loggers[0].handlers[:]
    for logger in loggers:
        logger.setLevel(logging.NOTSET if logger.parent else logging.WARNING)
    yield
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def written(stream: io.StringIO, how: Verbosity) -> str:
    """What a live line leaves: a step that is over, a wait and a warning."""
    with LiveLine(stream, verbosity=how) as line:
        line.show("step 1", final=True)
        line.wait("starting")
        line.message("worker lost")
    return stream.getvalue()


def test_quiet_lines_leave_warnings_alone(resize: Callable[[int, int], None]) -> None:
    resize(80, 24)
    for stream in (Terminal(), io.StringIO()):
        assert [line.split("  ")[1] for line in written(stream, "quiet").splitlines()] == ["worker lost"]
        assert "\x1b" not in stream.getvalue()


def test_verbose_lines_are_plain_in_a_terminal_too(resize: Callable[[int, int], None]) -> None:
    resize(80, 24)
    lines = written(Terminal(), "verbose").splitlines()
    assert [line.split("  ")[1] for line in lines] == ["step 1", "starting", "worker lost"]
    assert "\x1b[" in written(Terminal(), "normal")


@pytest.mark.parametrize(("how", "num_lines"), [("quiet", 0), ("verbose", 2)])
def test_the_table_of_a_sweep(resize: Callable[[int, int], None], how: Verbosity, num_lines: int) -> None:
    resize(80, 24)
    stream, history = Terminal(), History(seeds=1, reports=1)
    report = {"report": 1, "step": 1, "validation_loss": 2.0}
    with SweepTable(stream, verbosity=how) as table:
        for event in (
            {"event": "start", "settings": 1},
            {"event": "propose", "setting": 0, "values": {"train.seed": 1}},
            {"event": "begin", "trial": "trial_000"},
            {"event": "report", "trial": "trial_000", "verdict": "go", "report": report},
        ):
            history.record(event)
            table(event, history)
    assert stream.getvalue().count("\n") == num_lines
    assert "\x1b" not in stream.getvalue()


@pytest.mark.usefixtures("logs")
@pytest.mark.parametrize(
    ("options", "heard"),
    [(["-q"], []), ([], []), (["--debug"], ["warning"]), (["-v"], ["information", "warning"])],
)
def test_what_is_heard_of_libraries(
    options: list[str], heard: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(args: argparse.Namespace) -> int:
        logging.getLogger(LIBRARY).info("information")
        logging.getLogger(LIBRARY).warning("warning")
        print("result")
        return 0

    logging.getLogger().handlers[:] = []  # those of pytest
    monkeypatch.setattr("tokenfree.workflows.work.verify.run", run)
    assert cli.main(["verify", "x", *options]) == 0
    shown = capsys.readouterr()
    assert shown.out == "result\n"
    assert [word for word in ("information", "warning") if word in shown.err] == heard
    assert ("tokenfree verify: 0.0 seconds" in shown.err) == (options == ["-v"])


def test_only_verbose_commands_show_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    for how in ("quiet", "normal", "verbose"):
        show_settings(how, PreprocessConfig(books=("moby_dick.txt",)))
        shown = capsys.readouterr()
        assert shown.out == ""
        assert ("- moby_dick.txt" in shown.err and "max_characters: 2040" in shown.err) == (how == "verbose")


def test_all_commands_take_them_but_not_both(capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.command_names():
        with pytest.raises(SystemExit):
            # The actions of a command have options.
            cli.main([name, *(["up"] if name == "cluster" else []), "--help"])
        shown = " ".join(capsys.readouterr().out.split())
        assert "-q, --quiet only errors, warnings and the result" in shown, name
        assert "-v, --verbose also settings" in shown, name
    with pytest.raises(SystemExit):
        cli.main(["verify", "x", "-q", "-v"])
    assert "not allowed with" in capsys.readouterr().err
