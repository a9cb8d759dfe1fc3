"""The vectors of a corpus: what is in them, in what order, and that nothing but the corpus decides the bytes."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.train.finetune.conftest import splits, task_recipe, write_files
from tests.train.inference.embed.conftest import TEXTS
from tokenfree import load_encoder
from tokenfree.core.errors import JobError, UserError
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.finetune import finetune
from tokenfree.train.inference.embed import SUCCESS, Wanted, _batches, _Window, embed, spans, verify
from tokenfree.train.ray.child import ray_processes

PROGRAM = """
import sys
from tokenfree.train.inference import embed as parts
from tokenfree.train.inference.embed import embed
parts.SHARD_CHARACTERS = {"texts": 300}
embed(*sys.argv[1:], progress=lambda record, made: print(record.path, made, flush=True))
"""


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def rows(folder: Path) -> Any:
    found = datasets.load_from_disk(str(folder))
    assert found["number"][:] == list(range(len(found)))
    return found


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
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-P", "-c", PROGRAM, canine, lines, str(tmp_path / "killed")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for _ in range(2):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
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


def test_json_lines_and_packed_files(canine: str, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "texts.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"id": number, "body": text}) + "\n" for number, text in enumerate(TEXTS))
    embed(canine, str(tmp_path / "texts.jsonl.gz"), str(tmp_path / "out"), field="body")
    assert rows(tmp_path / "out")["text"][:] == TEXTS
    with pytest.raises(UserError, match=r"line 1: no text in the field 'text' \(the line has 'id', 'body'\)"):
        embed(canine, str(tmp_path / "texts.jsonl.gz"), str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_a_data_directory_gives_all_its_windows(canine: str, corpus: str, tmp_path: Path) -> None:
    result = embed(canine, corpus, str(tmp_path / "out"))
    readers = [ShardReader(corpus, split) for split in ("train", "validation")]
    assert result.texts == sum(shard.rows for reader in readers for shard in reader.shards)
    first = bytes(readers[0].shard(0).row("text", 0)).decode()
    last = bytes(readers[1].shard(0).row("text", readers[1].shards[0].rows - 1)).decode()
    assert (rows(tmp_path / "out")[0]["text"], rows(tmp_path / "out")[-1]["text"]) == (first, last)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.txt", b"good\n\xff\xfe bad\n", r"a\.txt: line 2: this is not utf-8"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"a\.jsonl: line 2: no JSON"),
        (
            "a.jsonl",
            b'{"text": "a"}\n[1]\n',
            r"line 2: no text in the field 'text' \(the line is not an object\)",
        ),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"a\.jsonl: line 1: half of a surrogate pair"),
        ("a.txt.gz", b"no gzip", r"a\.txt\.gz: cannot be read"),
        ("a.txt", b"", r"a\.txt: there is no text in it"),
        ("absent.txt", None, r"absent\.txt: there is no such file"),
    ],
)
def test_broken_input_is_named(name: str, data: bytes | None, said: str, canine: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=said):
        embed(canine, str(tmp_path / name), str(tmp_path / "out"))


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
