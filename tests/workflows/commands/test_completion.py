"""The script for bash completes in a real bash: commands, options, their choices, paths."""

import os
import pty
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tokenfree.workflows import cli


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of bash, in a file."""
    capture = pytest.MonkeyPatch()
    path = tmp_path_factory.mktemp("completion") / "tokenfree.bash"
    with capture.context() as patch, path.open("w", encoding="utf-8") as file:
        patch.setattr("sys.stdout", file)
        assert cli.main(["completion", "bash"]) == 0
    return path


def completed(script: Path, line: str, folder: Path) -> set[str]:
    """What bash offers for the last word of a line, after the function that it would call."""
    words = line.split(" ")
    program = (
        f"source {shlex.quote(str(script))}; COMP_WORDS=({' '.join(map(shlex.quote, words))}); "
        f"COMP_CWORD={len(words) - 1}; $(complete -p tokenfree | sed 's/.*-F //; s/ .*//'); "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, cwd=folder, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("line", "offered", "not_offered"),
    [
        ("tokenfree ", {"preprocess", "sweep", "completion"}, {"mine.yaml"}),
        ("tokenfree pre", {"preprocess", "pretrain", "predict"}, {"sweep"}),
        ("tokenfree pretrain canine-s-tiny --", {"--data", "--quiet"}, {"--trials"}),
        ("tokenfree export runs --to ", {"huggingface"}, {"mine.yaml"}),
        ("tokenfree pretrain m", {"mine.yaml"}, {"data"}),
        ("tokenfree pretrain canine-s-tiny --data ", {"data"}, set()),
    ],
)
def test_what_is_offered(
    script: Path, line: str, offered: set[str], not_offered: set[str], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "mine.yaml").touch()
    found = completed(script, line, tmp_path)
    assert offered <= found
    assert not not_offered & found


def test_tab_in_a_terminal(script: Path, tmp_path: Path) -> None:
    """Bash itself, asked by keys: what is unique is written out."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.environ.update(PS1="$ ", TERM="dumb", INPUTRC="/dev/null")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    try:
        keys = f"source {shlex.quote(str(script))}\nclear; tokenfree pretr\tcanine-s-tiny --extend\t3"
        os.write(terminal, keys.encode())
        shown, deadline = "", time.monotonic() + 20
        wanted = "tokenfree pretrain canine-s-tiny --extend-to 3"
        while wanted not in shown and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                shown = (shown + os.read(terminal, 4096).decode()).replace("\r", "").replace("\a", "")
        assert wanted in shown
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    for word in ("preprocess", "pretrain", "extend-to", "huggingface"):
        assert word in shown, word


def test_the_command_line_starts_without_what_makes_scripts() -> None:
    program = "import sys; from tokenfree.workflows import cli; cli.main([]); print('shtab' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
