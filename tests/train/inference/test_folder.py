"""Folders of embeddings: which job may resume in one, and how damage is found."""

from pathlib import Path
from typing import Any

import pytest

from tests.train.inference.conftest import TEXTS, content, rows
from tokenfree.core.errors import JobError, UserError
from tokenfree.train.inference.embed import Wanted, embed
from tokenfree.train.inference.folder import SUCCESS, verify


def test_other_settings_texts_or_weights_are_refused(
    canine: str, byte2word: str, lines: str, tmp_path: Path, small_shards: None
) -> None:
    out = str(tmp_path / "out")
    embed(canine, lines, out)
    with pytest.raises(
        UserError, match=r"has other vectors \(pooling 'mean', now None; vectors 'texts', now 'words'\)"
    ):
        embed(canine, lines, out, wanted=Wanted("words"))
    with pytest.raises(UserError, match=r"has other vectors \(encoder "):
        embed(byte2word, lines, out)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(UserError, match=r"no folder of vectors \(it holds other files\)"):
        embed(canine, lines, str(tmp_path / "other"))


def test_a_folder_in_the_making_goes_on_with_the_same_texts_alone(
    canine: str, lines: str, tmp_path: Path, small_shards: None
) -> None:
    def stop(record: Any, made: bool) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        embed(canine, lines, str(tmp_path / "out"), progress=stop)
    Path(lines).write_text("\n".join(["another", *TEXTS[1:]]))
    with pytest.raises(
        UserError, match=r"texts 1 to \d are not those that it was begun with. Give the same input"
    ):
        embed(canine, lines, str(tmp_path / "out"))


def test_fewer_and_more_texts_are_refused(
    canine: str, lines: str, tmp_path: Path, small_shards: None
) -> None:
    out = str(tmp_path / "out")
    embed(canine, lines, out)
    first = rows(tmp_path / "out").num_rows
    assert first == 46
    Path(lines).write_text("\n".join(TEXTS[:6]))  # the end of a shard
    with pytest.raises(UserError, match=r"has the vectors of more texts|are not those"):
        embed(canine, lines, out)
    Path(lines).write_text("\n".join([*TEXTS, "x" * 400]))
    with pytest.raises(UserError, match="are not those that it was begun with"):
        embed(canine, lines, out)


def test_damage_is_found(canine: str, lines: str, tmp_path: Path, small_shards: None) -> None:
    out = tmp_path / "out"
    embed(canine, lines, str(out))
    assert verify(str(out))["texts"] == 46
    for name in sorted(content(out)):
        data = (out / name).read_bytes()
        (out / name).write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        with pytest.raises(JobError, match=f"{name}: damaged|{name}.* is damaged|or {SUCCESS} is damaged"):
            verify(str(out))
        (out / name).write_bytes(data)
    (out / "data-00001.arrow").unlink()
    with pytest.raises(JobError, match=r"data-00001\.arrow: missing; remove the folder"):
        verify(str(out))
