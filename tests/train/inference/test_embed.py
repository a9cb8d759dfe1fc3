"""The vectors of a corpus: what is in them, in what order, and that nothing but the corpus decides the bytes."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.finetune.conftest import splits, task_recipe, write_files
from tests.train.fork_server import fork
from tests.train.inference.conftest import TEXTS, content, rows
from tokenfree import load_encoder
from tokenfree.core.errors import UserError
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.finetune import finetune
from tokenfree.train.inference.embed import Wanted, _batches, _Window, embed, spans
from tokenfree.train.inference.folder import SUCCESS
from tokenfree.train.ray.child import ray_processes

PROGRAM = """
import sys
from tokenfree.train.inference import corpus
from tokenfree.train.inference.embed import embed
corpus.SHARD_CHARACTERS = {"texts": 300}
embed(*sys.argv[1:], progress=lambda record, made: print(record.path, made, flush=True))
"""


def test_a_text_has_the_mean_of_its_characters(
    canine: str, lines: str, tmp_path: Path, small_shards: None
) -> None:
    result = embed(canine, lines, str(tmp_path / "out"))
    assert (result.texts, result.vectors, result.width, result.already_complete) == (46, 46, 16, False)
    assert result.shards > 3
    assert result.windows > 46
    found = rows(tmp_path / "out")
    assert found["text"][:] == TEXTS
    encoder = load_encoder(canine)
    for text, vector, windows in zip(TEXTS, found["vector"], found["windows"], strict=True):
        parts = [text[start:end] for start, end in spans(text, encoder.max_characters)]
        assert len(parts) == windows
        sizes = [max(len(part), 1) for part in parts]
        expected = np.average([encoder([part]).mean[0].numpy() for part in parts], axis=0, weights=sizes)
        np.testing.assert_allclose(vector, expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "cls_max"])
def test_other_vectors_of_a_text(pooling: Any, canine: str, lines: str, tmp_path: Path) -> None:
    embed(canine, lines, str(tmp_path / "out"), wanted=Wanted(pooling=pooling))
    expected = getattr(load_encoder(canine)([TEXTS[0]]), pooling)[0].numpy()
    np.testing.assert_allclose(rows(tmp_path / "out")[0]["vector"], expected, atol=1e-5)


def test_what_a_run_did_not_train_is_refused(canine: str, lines: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--pooling pooled: this run did not train"):
        embed(canine, lines, str(tmp_path / "out"), wanted=Wanted(pooling="pooled"))
    assert not (tmp_path / "out").exists()


def test_every_character_has_a_vector(canine: str, lines: str, tmp_path: Path) -> None:
    embed(canine, lines, str(tmp_path / "out"), wanted=Wanted("characters"))
    found = rows(tmp_path / "out")
    assert [len(row) for row in found["vectors"]] == [len(text) for text in TEXTS]
    expected = load_encoder(canine)([TEXTS[2]]).characters[0, 1:-1].numpy()
    np.testing.assert_allclose(found[2]["vectors"], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["canine", "byte2word"])
def test_every_word_has_a_vector(
    name: str, lines: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run = request.getfixturevalue(name)
    embed(run, lines, str(tmp_path / "out"), wanted=Wanted("words"))
    encoder = load_encoder(run)
    for row in rows(tmp_path / "out"):
        text, starts, ends = row["text"], row["word_starts"], row["word_ends"]
        assert len(row["vectors"]) == len(starts) == len(ends)
        if row["windows"] == 1:
            encoded = text.encode()
            spelled = [encoded[start:end].decode() for start, end in zip(*word_spans(text), strict=True)]
            assert [text[start:end] for start, end in zip(starts, ends, strict=True)] == spelled
        else:
            assert "".join(text[start:end] for start, end in zip(starts, ends, strict=True)) == "".join(
                text.split()
            )
    found = encoder([TEXTS[0]])
    second = slice(1 + row_of(TEXTS[0], 1)[0], 1 + row_of(TEXTS[0], 1)[1])
    expected = found.characters[0, second].mean(dim=0) if found.words is None else found.words[0, 2]
    np.testing.assert_allclose(rows(tmp_path / "out")[0]["vectors"][1], expected.numpy(), atol=1e-5)


def row_of(text: str, word: int) -> tuple[int, int]:
    """The characters of a word of ASCII."""
    starts, ends = word_spans(text)
    return int(starts[word]), int(ends[word])


def test_killed_and_given_again_it_ends_as_one_that_never_was(
    canine: str, lines: str, tmp_path: Path, small_shards: None
) -> None:
    embed(canine, lines, str(tmp_path / "whole"))
    reading, writing = os.pipe()
    with open(reading) as output:
        with open(writing, "w") as stdout:
            process = fork(PROGRAM, canine, lines, str(tmp_path / "killed"), stdout=stdout)
        for _ in range(2):
            output.readline()
        process.kill()
        process.wait()
    assert not (tmp_path / "killed" / SUCCESS).exists()
    made: list[bool] = []
    embed(canine, lines, str(tmp_path / "killed"), progress=lambda record, now: made.append(now))
    assert made.count(False) >= 2
    assert made.count(True) >= 1
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    assert not (tmp_path / "whole" / "parts").exists()

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "whole").rglob("*")}
    result = embed(canine, lines, str(tmp_path / "whole"))
    assert result.already_complete
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "whole").rglob("*")} == before


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_workers_of_ray_write_the_same_bytes(
    workers: int, canine: str, lines: str, tmp_path: Path, small_shards: None
) -> None:
    embed(canine, lines, str(tmp_path / "alone"))
    embed(canine, lines, str(tmp_path / "ray"), workers=workers)
    assert content(tmp_path / "ray") == content(tmp_path / "alone")


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again(
    canine: str, lines: str, tmp_path: Path, small_shards: None
) -> None:
    embed(canine, lines, str(tmp_path / "alone"))
    killed: list[int] = []

    def kill(record: Any, made: bool) -> None:
        if not killed:
            workers = ray_processes(title="ray::_Worker")
            killed.extend(each.pid for each in workers)
            for each in workers:
                each.kill()

    embed(canine, lines, str(tmp_path / "ray"), workers=1, progress=kill)
    assert killed
    assert content(tmp_path / "ray") == content(tmp_path / "alone")


@pytest.mark.slow
def test_an_error_in_a_worker_is_that_of_this_process(
    canine: str, lines: str, tmp_path: Path, small_shards: None
) -> None:
    for workers in (None, 1):
        with pytest.raises(
            UserError, match=r"^text 4 has 70 characters and this model reads 5\d. Cut it, or leave out"
        ):
            embed(canine, lines, str(tmp_path / "out"), wanted=Wanted(windowed=False), workers=workers)


@pytest.mark.parametrize("most", [1, 2, 7, 30])
def test_windows_are_the_whole_text(most: int) -> None:
    for text in [*TEXTS, " " * 99, "word " + " " * 60 + "word"]:
        found = spans(text, most)
        assert "".join(text[start:end] for start, end in found) == text
        assert all(end - start <= most for start, end in found)
        assert len(text) <= most or all(end > start for start, end in found)
    assert spans("One here. Two here. Three.", 20) == [(0, 20), (20, 26)]


def test_a_fine_tuned_run_gives_the_vector_that_it_trained(lines: str, tmp_path: Path) -> None:
    files = write_files(tmp_path)
    run, out = str(tmp_path / "run"), tmp_path / "out"
    finetune(task_recipe({"name": "classification", "representation": "pooled"}, steps=2), splits(files), run)
    embed(run, lines, str(out), wanted=Wanted(pooling="pooled"))
    expected = load_encoder(run)([TEXTS[0]]).pooled[0].numpy()
    np.testing.assert_allclose(rows(out)[0]["vector"], expected, atol=1e-5)


def test_batches_have_little_padding() -> None:
    lengths = [1000, 12, 400, 990, 396, 10, 11]
    windows = [_Window(text, 0, length) for text, length in enumerate(lengths)]
    batches = [[window.text for window in batch] for batch in _batches(windows, lambda length: length + 2)]
    assert batches == [[0, 3], [2, 4], [1, 6, 5]]
    many = list(_batches([_Window(text, 0, 5) for text in range(200)], lambda length: length + 2))
    assert [len(batch) for batch in many] == [64, 64, 64, 8]
