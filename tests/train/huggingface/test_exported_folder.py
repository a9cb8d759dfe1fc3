"""Folders of exports appear whole, so that the same command works after a kill."""

from pathlib import Path

import pytest

from tests.train.fork_server import fork
from tokenfree.core.errors import UserError
from tokenfree.core.stored_files import check_finished
from tokenfree.train.huggingface.exported_folder import new_folder

KILLED = """
import os, signal, sys
from tokenfree.train.huggingface.exported_folder import new_folder
with new_folder(sys.argv[1]) as folder:
    (folder / "model.onnx").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def write(target: Path | str) -> None:
    with new_folder(target) as folder:
        (folder / "model.onnx").write_text("whole")


@pytest.mark.parametrize("exists", [True, False])
def test_new_folder_works_after_a_kill(tmp_path: Path, exists: bool) -> None:
    target = tmp_path / "deep" / "out"
    if exists:
        target.mkdir(parents=True, mode=0o700)
    assert fork(KILLED, str(target)).wait() == -9
    assert not target.exists() or not any(target.iterdir())
    write(target)
    assert list(target.parent.iterdir()) == [target]
    assert sorted(path.name for path in target.iterdir()) == ["hashes.json", "model.onnx"]
    assert (target / "model.onnx").read_text() == "whole"
    check_finished(target)
    if exists:
        assert target.stat().st_mode & 0o777 == 0o700
    with pytest.raises(UserError, match="out is there already; give a new or empty folder"):
        write(target)


def test_new_folder_keeps_links_and_refuses_what_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "model.onnx").exists()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UserError, match="here cannot be replaced; give a folder in it"):
        write(".")
