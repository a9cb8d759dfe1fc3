"""Parquet tables of a data directory: equal rows, resumed exports, and folders that are refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import datasets
import fsspec
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard

from tests.conftest import REPOSITORY
from tokenfree.core.errors import JobError, UserError
from tokenfree.preprocess.dataset.card import CARD, export_tables
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.records import COLUMN_TYPES, schema
from tokenfree.workflows import cli

TEXT = "Äpfel und Öl. Москва спит. 日本\u3000語を読む。 🦢🦢 ok. The end.\n"


def preprocess(folder: Path, name: str, *options: str) -> str:
    (folder / "books" / "en").mkdir(parents=True, exist_ok=True)
    for number in range(30):
        (folder / "books" / "en" / f"{number}.txt").write_text(f"Book {number}. {TEXT * 3}", encoding="utf-8")
    command = [
        "preprocess",
        "--books",
        str(folder / "books"),
        "--output",
        str(folder / name),
        "--workers",
        "1",
    ]
    command += ["--vocabulary.size", "400", "--validation_fraction", "0.2", "--shards", "2"]
    assert cli.main([*command, *options]) == 0
    return str(folder / name)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return preprocess(tmp_path_factory.mktemp("data"), "data")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_tables_hold_the_rows_of_the_shards(data: str, tmp_path: Path) -> None:
    names = export_tables(data, tmp_path / "tables")
    manifest = load_manifest(data)
    assert names == [*(shard.path.replace(".arrow", ".parquet") for shard in manifest.shards), CARD]
    assert sorted(contents(tmp_path / "tables")) == sorted(names)
    for name in ("train", "validation"):
        expected = pa.concat_tables(
            pa.ipc.open_stream(f"{data}/{shard.path}").read_all() for shard in manifest.splits[name].shards
        )
        table = pyarrow.dataset.dataset(tmp_path / "tables" / name).to_table()
        assert table.schema.equals(schema())
        assert table.equals(expected)
    opened = datasets.load_dataset(str(tmp_path / "tables"), cache_dir=str(tmp_path / "cache"))
    assert {name: rows.num_rows for name, rows in opened.items()} == {
        name: split.rows for name, split in manifest.splits.items()
    }
    card = DatasetCard.load(tmp_path / "tables" / CARD)
    assert card.data.to_dict()["configs"][0]["data_files"] == [
        {"split": name, "path": f"{name}/*.parquet"} for name in manifest.splits
    ]


def test_tables_are_compressed_in_row_groups(data: str, tmp_path: Path) -> None:
    export_tables(data, tmp_path)
    shard = load_manifest(data).shards[0]
    file = pq.ParquetFile(tmp_path / shard.path.replace(".arrow", ".parquet"))
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    assert sum(group.num_rows for group in groups) == shard.rows
    assert max(group.num_rows for group in groups) <= 1000
    assert {groups[0].column(number).compression for number in range(len(COLUMN_TYPES))} == {"ZSTD"}


def test_left_out_columns_stay_out(tmp_path: Path) -> None:
    columns = ["text", "word_starts", "word_ends"]
    data = preprocess(tmp_path, "small", "--columns", json.dumps(columns))
    export_tables(data, tmp_path / "tables")
    assert pyarrow.dataset.dataset(tmp_path / "tables" / "train").schema.equals(schema(columns))
    card = (Path(data) / CARD).read_text()
    assert "`codepoints` and `whitespace` follow from `text` and are left out" in card


def test_card_says_what_the_columns_of_characters_take(data: str) -> None:
    assert "`codepoints` and `whitespace` follow from `text` and take " in (Path(data) / CARD).read_text()


def test_export_resumes(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    names = export_tables(data, whole)

    def stop(name: str) -> None:
        if name == names[1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_tables(data, killed, progress=stop)
    (killed / "_tmp").mkdir(exist_ok=True)
    (killed / "_tmp" / "half").write_bytes(b"PAR1")
    assert export_tables(data, killed) == names[2:]
    assert contents(killed) == contents(whole)

    capsys.readouterr()
    command = ["export", data, "--to", "parquet", str(killed)]
    assert cli.main(command) == 0
    assert f"{killed}: already complete; nothing to do" in capsys.readouterr().out
    (killed / names[0]).unlink()
    assert cli.main(command) == 0
    assert f"1 new file in {killed}" in capsys.readouterr().out
    assert contents(killed) == contents(whole)


@pytest.mark.parametrize("kind", ["file", "foreign", "other table", "changed card", "no folder"])
def test_other_folders_are_refused(
    kind: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    name = load_manifest(data).shards[0].path.replace(".arrow", ".parquet")
    if kind == "no folder":
        folder.write_text("a file")
    elif kind == "changed card":
        export_tables(data, folder)
        (folder / CARD).write_text("mine")
    else:
        file = folder / ("notes.txt" if kind == "file" else name)
        file.parent.mkdir(parents=True)
        file.write_text("mine")
        if kind == "other table":
            pq.write_table(pa.table({"text": ["mine"]}), file)
    before = {} if kind == "no folder" else contents(folder)
    assert cli.main(["export", data, "--to", "parquet", str(folder)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert kind == "no folder" or "which is not of this export; give a new or empty folder" in error
    assert kind == "no folder" or contents(folder) == before


def test_what_is_no_data_directory_is_refused(data: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no manifest.json there"):
        export_tables(tmp_path, tmp_path / "out")
    assert cli.main(["export", data, "--to", "parquet", "--step", "3", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_a_damaged_shard_is_named(data: str, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "copy")
    shard = load_manifest(data).shards[1].path
    damaged = bytearray((tmp_path / "copy" / shard).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "copy" / shard).write_bytes(damaged)
    with pytest.raises(JobError, match=rf"{shard}: damaged"):
        export_tables(tmp_path / "copy", tmp_path / "out")
    assert len(contents(tmp_path / "out")) == 1, "the table before it is kept"


def test_stores_are_read_and_written(data: str, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(f"{data}/", "/exported/data/", recursive=True)
    try:
        export_tables("memory://exported/data", tmp_path / "local")
        export_tables(data, "memory://exported/tables")
        memory.get("/exported/tables/", f"{tmp_path}/fetched/", recursive=True)
    finally:
        memory.rm("/exported", recursive=True)
    tables = {
        name: content for name, content in contents(tmp_path / "fetched").items() if "_lock" not in name
    }
    assert tables == contents(tmp_path / "local")


def test_torch_is_not_needed(data: str, tmp_path: Path) -> None:
    program = "import sys; sys.modules['torch'] = None; from tokenfree.workflows import cli; "
    program += "sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "export", data, "--to", "parquet", str(tmp_path / "out")]
    assert subprocess.run(command, check=False, cwd=REPOSITORY, timeout=100).returncode == 0
