"""A finished job is recognised by what its inputs look like; hashing tells where that leaves a doubt."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.pipelines import preprocess as pipeline
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.job import inputs as recognition
from tokenfree.preprocess.sources import files
from tokenfree.workflows.cli import main

Config = Callable[..., Any]


@pytest.fixture
def two(tmp_path: Path, make_corpus: Any) -> tuple[Path, Path]:
    """Two inputs."""
    paths = tmp_path / "in" / "one.jsonl", tmp_path / "in" / "two.jsonl"
    paths[0].parent.mkdir()
    for number, path in enumerate(paths):
        make_corpus(path, 30, seed=number)
    return paths


@pytest.fixture
def job(two: tuple[Path, Path], tmp_path: Path, make_config: Config) -> Callable[..., Any]:
    """Runs the job on both inputs, or on others."""

    def run(*inputs: Path, **options: Any) -> Any:
        return run_preprocess(make_config(*(inputs or two)), str(tmp_path / "out"), **options)

    return run


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the inputs that recognition hashes."""
    names: list[str] = []
    hash_input = recognition.hash_input
    monkeypatch.setattr(recognition, "hash_input", lambda file: names.append(file.name) or hash_input(file))
    return names


def shift(path: Path, seconds: float = 100.0) -> None:
    """Another time of the last change."""
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - seconds))


def test_the_mark_tells_what_the_inputs_were_like(job: Any, two: tuple[Path, Path], tmp_path: Path) -> None:
    manifest = job()
    mark = json.loads((tmp_path / "out" / "_SUCCESS").read_text())
    assert [entry["path"] for entry in manifest.inputs] == ["one.jsonl", "two.jsonl"]
    assert mark["inputs"] == [
        {"path": path.name, "size": path.stat().st_size, "modified": str(path.stat().st_mtime)}
        for path in two
    ]


def test_the_lock_of_a_job_killed_at_its_very_end_goes(job: Any, tmp_path: Path) -> None:
    manifest = job()
    (tmp_path / "out" / "_lock").touch()
    assert job() == manifest
    assert not (tmp_path / "out" / "_lock").exists()


def test_nothing_is_read_of_inputs_that_look_the_same(
    job: Any, hashed: list[str], two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = job()
    monkeypatch.setattr(pipeline, "plan_splits", lambda *_: pytest.fail("the inputs are cut"))
    monkeypatch.setattr(recognition, "plan_splits", lambda *_: pytest.fail("the inputs are cut"))
    assert job() == manifest
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert job(*(Path(shutil.copy2(path, elsewhere)) for path in two)) == manifest
    assert hashed == []


def test_an_input_of_another_time_is_hashed_once(
    job: Any, hashed: list[str], two: tuple[Path, Path], tmp_path: Path
) -> None:
    manifest = job()
    shift(two[1])
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert job() == job() == manifest
    assert hashed == ["one.jsonl", "two.jsonl"]  # the mark knows the new time
    after = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {path.name for path in before if before[path] != after[path]} == {"_SUCCESS"}
    assert before.keys() == after.keys()


def test_a_directory_that_cannot_be_written_to_is_recognised_all_the_same(
    job: Any, hashed: list[str], two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = job()
    shift(two[0])

    def refuse(*_: Any) -> None:
        raise UserError("cannot write here")

    monkeypatch.setattr(recognition, "mark_success", refuse)
    assert job() == job() == manifest
    assert hashed == ["one.jsonl", "two.jsonl"] * 2


def test_an_input_of_another_size_is_refused_without_hashing(
    job: Any, hashed: list[str], two: tuple[Path, Path]
) -> None:
    job()
    with two[0].open("a") as file:
        file.write("\n")
    with pytest.raises(
        UserError, match=r"was made with another content of the input one\.jsonl; give another --out"
    ):
        job()
    assert hashed == []


def test_another_content_of_the_same_size(job: Any, hashed: list[str], two: tuple[Path, Path]) -> None:
    manifest = job()
    time = two[0].stat().st_mtime_ns
    two[0].write_bytes(two[0].read_bytes().replace(b"geese", b"ducks"))
    with pytest.raises(UserError, match=r"another content of the input one\.jsonl"):
        job()
    assert hashed == ["one.jsonl", "two.jsonl"]
    os.utime(two[0], ns=(time, time))
    assert job() == manifest  # nobody can tell without reading it
    with pytest.raises(UserError, match=r"another content of the input one\.jsonl"):
        job(check_inputs=True)
    assert hashed == ["one.jsonl", "two.jsonl"] * 2


def test_more_and_fewer_inputs_are_refused_by_name(
    job: Any, hashed: list[str], two: tuple[Path, Path]
) -> None:
    job()
    with pytest.raises(UserError, match=r"the input two\.jsonl, which is not given now"):
        job(two[0])
    third = two[0].with_name("three.jsonl")
    third.write_bytes(b"")
    with pytest.raises(UserError, match=r"no input three\.jsonl"):
        job(*two, third)
    assert hashed == []


def test_inputs_are_hashed_once_if_the_mark_is_damaged(
    job: Any, hashed: list[str], two: tuple[Path, Path], tmp_path: Path
) -> None:
    manifest = job()
    mark = (tmp_path / "out" / "_SUCCESS").read_bytes()
    (tmp_path / "out" / "_SUCCESS").write_bytes(b"")
    with pytest.raises(UserError, match=r"the input two\.jsonl, which is not given now"):
        job(two[0])
    assert hashed == []  # names stand in the manifest too
    assert job() == job() == manifest
    assert hashed == ["one.jsonl", "two.jsonl"]
    assert json.loads((tmp_path / "out" / "_SUCCESS").read_text())["manifest_sha256"] in mark.decode()


def test_a_store_that_tells_no_times_is_asked_for_contents(
    job: Any, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = files._input_file

    def timeless(fs: Any, info: Any, root: str) -> files.InputFile:
        return files.replace(find(fs, info, root), modified="")

    monkeypatch.setattr(files, "_input_file", timeless)
    manifest = job()
    assert job() == manifest
    assert hashed == ["one.jsonl", "two.jsonl"]


def test_inputs_with_nothing_in_them_are_known_too(
    two: tuple[Path, Path], tmp_path: Path, make_config: Config, hashed: list[str]
) -> None:
    two[1].write_bytes(b"")
    config, output = make_config(two[0].parent), str(tmp_path / "out")
    manifest = run_preprocess(config, output)
    assert [entry["path"] for entry in manifest.inputs] == ["one.jsonl"]
    assert run_preprocess(config, output) == manifest
    assert hashed == []
    shift(two[1])
    assert run_preprocess(config, output) == run_preprocess(config, output, check_inputs=True) == manifest
    assert hashed == ["one.jsonl", "one.jsonl"]


def test_the_option(
    two: tuple[Path, Path], tmp_path: Path, hashed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--vocabulary.size",
        "320",
        "--vocabulary.required_characters",
        "none",
        "--vocabulary.character_coverage",
        "0.98",
    ]
    command = ["preprocess", "--books", *map(str, two), "--output", str(tmp_path / "out"), *options]
    assert main(command) == 0
    assert main([*command, "--check_inputs"]) == 0
    assert "already complete" in capsys.readouterr().out
    assert hashed == ["one.jsonl", "two.jsonl"]
