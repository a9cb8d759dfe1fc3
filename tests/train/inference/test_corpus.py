"""Corpora to embed: text files, JSON lines, data directories, and what cannot be read."""

import gzip
import json
from pathlib import Path

import pytest

from tests.train.inference.conftest import TEXTS, rows
from tokenfree.core.errors import UserError
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.inference.embed import embed


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
