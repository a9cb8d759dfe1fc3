"""Text from outside moves no cursor: control characters of ids, names, answers and errors are spelled out."""

import contextlib
import importlib
import io
import json
import logging
import os
import pty
import re
import socketserver
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from tokenfree.core.errors import JobError, UserError
from tokenfree.train.inference.predictor import Guess
from tokenfree.workflows import cli
from tokenfree.workflows.terminal.output import PrintableStream, one_line, printable
from tokenfree.workflows.terminal.progress import LiveLine, PlainConsole

HOSTILE = "geese\x1b]0;owned\x07\x1b[2J\x9b31m\x90q\x9c\r\x08\x7f\x00\u202egpj\u2066\u2028"
HOSTILE += "[bold red]x[/bold red][/]:wave:"
IN_A_NAME = HOSTILE.replace("\x00", "").replace("/", "")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
COLOUR = re.compile("\x1b\\[[0-9;]*m")
MARKUP = "[bold red]x[/bold red][/]:wave:"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(capsys: pytest.CaptureFixture[str], *, some: str = "\\u001b]0;owned\\u0007") -> str:
    """What a command printed: the hostile text is among it, and no control character."""
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert CONTROL.findall(text) == []
    assert some in text
    return text


@given(st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF)))
def test_any_text_is_printable_once_and_for_all(text: str) -> None:
    made = printable(text)
    assert not CONTROL.search(made)
    assert printable(made) == made
    assert "\n" not in one_line(text)
    stream = io.StringIO(newline="")
    assert PrintableStream(stream).write(text) == len(text)
    assert stream.getvalue() == made
    with contextlib.suppress(UnicodeEncodeError):  # what json itself spells out stays as it is
        assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


def test_printable_stream_discards_output_once_its_terminal_is_closed() -> None:
    controller, terminal = pty.openpty()
    with open(terminal, "w", buffering=1) as raw:
        stream = PrintableStream(raw)
        os.close(controller)
        for _ in range(2):
            stream.write("step 7\n")
            stream.rich_proxied_file.write("step 7\n")
            stream.flush()


def test_text_of_all_scripts_stays() -> None:
    text = "Löwe\tخرطوم 河\n\u200fעברית\u200c می‌خواهم 👩‍🚀 e\u0301"
    assert printable(text) == text


@pytest.mark.parametrize("name", cli.command_names())
def test_no_command_writes_what_it_is_given_as_it_is(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for argv, some in (
        ([IN_A_NAME, f"--{HOSTILE}\n"], "\\u001b]0;owned"),
        (["--output", IN_A_NAME, "--x"], ""),
        (["\udcff"], "\\udcff"),
    ):
        with contextlib.suppress(SystemExit):
            assert cli.main([name, *argv]) in (1, 2)
        shown(capsys, some=some)


@pytest.mark.parametrize("flags", [[], ["--debug"], ["--verbose"], ["--quiet"]])
@pytest.mark.parametrize(
    "error",
    [UserError(HOSTILE), UserError(HOSTILE, [HOSTILE, HOSTILE]), JobError(HOSTILE + "\n" + HOSTILE),
     OSError(5, HOSTILE, HOSTILE), OSError(HOSTILE), RuntimeError(HOSTILE)],
)  # fmt: skip
def test_errors_and_messages(
    error: Exception, flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: Any) -> int:
        print(HOSTILE)
        sys.stderr.writelines([HOSTILE, "\n"])
        logging.getLogger("tokenfree").error(HOSTILE)
        warnings.warn(HOSTILE, stacklevel=1)
        raise error

    kept = logging.getLogger().handlers[:], logging.getLogger().level
    monkeypatch.setattr(importlib.import_module("tokenfree.workflows.commands.completion"), "run", run)
    try:
        assert cli.main(["completion", "bash", *flags]) in (1, 2)
    finally:
        logging.getLogger().handlers[:], logging.getLogger().level = kept
    text = shown(capsys)
    assert MARKUP in text
    if not flags:
        assert f"\ntokenfree: {'RuntimeError: ' * (type(error) is RuntimeError)}" in text
        assert text.count("\n") <= 8  # no error has a line more for an end of line in it


def test_data_with_hostile_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    books = Path("books")
    books.mkdir()
    text = "Seven geese argue about bread in the rain.\n\nThey are loud, and old boats are quiet.\n\n"
    rows = [{"id": f"{HOSTILE}{n}", "title": HOSTILE, "text": f"{HOSTILE} {n} {text * 9}"} for n in range(12)]
    (books / f"{IN_A_NAME}.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows) + HOSTILE + "\n"
    )
    output = f"data{IN_A_NAME}"
    small = ["--vocabulary.size", "400", "--validation_fraction", "0.2"]
    assert cli.main(["preprocess", "--books", "books", "--output", output, *small, "--dry-run"]) == 0
    capsys.readouterr()
    assert cli.main(["preprocess", "--books", "books", "--output", output, *small, "--workers", "1"]) == 0
    shown(capsys)
    for command in (["inspect", output, "--sample", "2"], ["verify", output], ["replay", output]):
        assert cli.main(command) == 0
        assert "[bold red]x" in shown(capsys)
    assert cli.main(["inspect", output, "--sample", "1", "--json"]) == 0
    assert any(HOSTILE in window["labels"]["document"] for window in json.loads(shown(capsys))["windows"])
    assert cli.main(["report", output, "--output", f"{IN_A_NAME}.html"]) == 0
    shown(capsys)
    shard = next(Path(output).rglob("*.arrow"))
    shard.write_bytes(shard.read_bytes()[:-1])
    assert cli.main(["verify", output]) == 1
    shown(capsys, some=".arrow")


def test_a_servers_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    class Hostile(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(
                f"HTTP/1.0 403 {HOSTILE}\r\n\r\n".replace("\r\x08", "").encode("latin-1", "ignore")
            )

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Hostile) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/{'dumps'}"
        assert (
            cli.main(
                ["download", "sw", "--output", str(tmp_path / IN_A_NAME), "--mirror", url, "--allow-http"]
            )
            == 1
        )
        server.shutdown()
    shown(capsys)


def test_guesses(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    guess = Guess(HOSTILE, 0.5)

    class Stub:
        checkpoint = SimpleNamespace(step=1, record=lambda: {"step": 1})
        recipe = SimpleNamespace(train=SimpleNamespace(steps=2))

        def __call__(self, text: str, top: int) -> list[list[Guess]]:
            return [[guess]]

    monkeypatch.setattr("tokenfree.workflows.work.predict.load_predictor", lambda *_, **__: Stub())
    monkeypatch.setattr("tokenfree.workflows.work.predict.is_finetuned", lambda _: False)
    assert cli.main(["predict", "run", HOSTILE]) == 0
    assert shown(capsys).count("geese") == 2
    assert cli.main(["predict", "run", HOSTILE, "--json"]) == 0
    assert json.loads(shown(capsys))["text"] == HOSTILE


def test_doctor_names_what_it_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor", "--storage", f"nowhere://{HOSTILE}"])
    assert MARKUP in shown(capsys).replace("\n", "")


def test_what_is_drawn_in_a_terminal_has_our_colours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    table = Table(HOSTILE, style="red")
    table.add_row(HOSTILE)
    console = PlainConsole(terminal, 400)
    console.print(table, style="green")
    console.print(HOSTILE, style="cyan")
    assert COLOUR.search(terminal.getvalue())
    assert CONTROL.findall(COLOUR.sub("", terminal.getvalue())) == []
    assert terminal.getvalue().count(MARKUP) == 3
    edges = [line.rstrip()[-1:] for line in COLOUR.sub("", terminal.getvalue()).splitlines()[:5]]
    assert edges == ["┓", "┃", "┩", "│", "┘"]  # as wide as what is shown


@pytest.mark.parametrize("live", [True, False])
def test_live_lines_stay_where_they_are(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "300")
    terminal = Terminal() if live else io.StringIO()
    with LiveLine(terminal) as line:
        line.show(HOSTILE, "b\nc", final=True)
        line.message(f"a\n{HOSTILE}")
    text = terminal.getvalue()
    assert not re.search("\x1b[]P_^X]|\x1b\\[2J|[\x07\x08\x7f-\x9f\u202e]", text)
    assert "b\\nc" in text
    assert MARKUP in text


def test_a_sweeps_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    table = importlib.import_module("tokenfree.workflows.terminal.sweep")
    monkeypatch.setattr(table, "log_line", lambda *_: f"{HOSTILE}\nb")
    monkeypatch.setattr(table, "summary", lambda *_: "")
    stream = io.StringIO()
    trial = SimpleNamespace(name="trial_000", state="failed", ended=True)
    history = SimpleNamespace(trials={"trial_000": trial})
    table.SweepTable(stream)({"event": "failure", "trial": "trial_000"}, history)
    assert CONTROL.findall(stream.getvalue()) == []
    assert stream.getvalue().count("\n") == 1


@pytest.fixture(autouse=True)
def _no_colour_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
