"""Directories in which a job was begun: with inputs that changed meanwhile, by an earlier version, or with others."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import JobError, UserError
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import VocabularyConfig
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.preprocess.job import inputs as job_inputs
from tokenfree.preprocess.job import read as hash_step
from tokenfree.preprocess.job import read as read_step
from tokenfree.preprocess.sources import files

Config = Callable[..., Any]


@pytest.fixture
def two(tmp_path: Path, make_corpus: Any) -> tuple[Path, Path]:
    """Two inputs."""
    paths = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    for number, path in enumerate(paths):
        make_corpus(path, 30, seed=number)
    return paths


@pytest.fixture
def begun(
    two: tuple[Path, Path], tmp_path: Path, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The directory of a job of both inputs that failed when all but its last shards were built."""
    build = "tokenfree.preprocess.job.steps.build_shard"
    with monkeypatch.context() as patched:
        built: list[int] = []
        from tokenfree.preprocess.job.steps import build_shard

        def failing(*given: Any, **named: Any) -> Any:
            built.append(1)
            return build_shard(*given, **named) if len(built) < 3 else 1 / 0

        patched.setattr(build, failing)
        with pytest.raises(JobError, match="ZeroDivisionError: division by zero"):
            run_preprocess(make_config(*two, shards=4), str(tmp_path / "out"))
    assert list((tmp_path / "out" / "train").iterdir())
    return tmp_path / "out"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the inputs that are read."""
    names: list[str] = []
    read = read_step.read_split
    monkeypatch.setattr(
        read_step, "read_split", lambda split, *rest: names.extend(split.names) or read(split, *rest)
    )
    return names


def contents(output: Path) -> dict[str, bytes]:
    """All files but the mark, which tells times."""
    paths = [path for path in output.rglob("*") if path.is_file() and path.name != "_SUCCESS"]
    return {str(path.relative_to(output)): path.read_bytes() for path in paths}


def test_only_a_changed_input_is_read_again(
    begun: Path,
    two: tuple[Path, Path],
    tmp_path: Path,
    make_config: Config,
    reads: list[str],
    make_corpus: Any,
) -> None:
    make_corpus(two[1], 12, seed=7)
    told: list[str] = []
    manifest = run_preprocess(make_config(*two, shards=4), str(begun), notice=told.append)
    assert reads == ["two.jsonl"]
    assert told == [f"{begun}: changed since the job was begun, so read again: two.jsonl"]
    assert run_preprocess(make_config(*two, shards=4), str(tmp_path / "fresh")) == manifest
    assert contents(begun) == contents(tmp_path / "fresh")
    verify(str(begun))


def test_with_earlier_values_keeps_those_of_a_finished_directory(
    two: tuple[Path, Path], tmp_path: Path, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = str(tmp_path / "out")
    earlier = make_config(*two, vocabulary=VocabularyConfig(size=400, required_characters="none"))
    run_preprocess(earlier, output)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    del manifest["config"]["vocabulary"]["required_characters"]  # as if the key had been added after this job
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "out" / "_SUCCESS").unlink()
    monkeypatch.setattr(job_inputs, "LATER_FIELDS", ("vocabulary.required_characters",))
    monkeypatch.setattr(job_inputs, "EARLIER_VALUES", {"vocabulary": {"required_characters": "none"}})
    for characters in ("ascii", "none"):
        vocabulary = VocabularyConfig(size=400, required_characters=characters)
        kept = run_preprocess(make_config(*two, vocabulary=vocabulary), output)
        assert "required_characters" not in kept.config["vocabulary"]


def test_a_finished_directory_of_another_encoding_is_refused(
    two: tuple[Path, Path], tmp_path: Path, make_config: Config
) -> None:
    run_preprocess(make_config(*two), str(tmp_path / "out"))
    with pytest.raises(UserError, match='encoding null, not "cp1250"'):
        run_preprocess(make_config(*two, encoding="cp1250"), str(tmp_path / "out"))


def test_required_characters_decide_the_identity(
    two: tuple[Path, Path], tmp_path: Path, make_config: Config
) -> None:
    config = make_config(*two, vocabulary=VocabularyConfig(size=400))
    run_preprocess(config, str(tmp_path / "out"))
    other = dataclasses.replace(config, vocabulary=VocabularyConfig(size=400, required_characters="none"))
    with pytest.raises(UserError, match=r'vocabulary\.required_characters "ascii", not "none"'):
        run_preprocess(other, str(tmp_path / "out"))


def test_hashes_are_made_beside_reading_and_kept(
    begun: Path, two: tuple[Path, Path], make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_step, "hash_input", lambda file: pytest.fail(f"{file.name} was hashed before"))
    run_preprocess(make_config(*two, shards=4), str(begun))
    monkeypatch.undo()


def test_the_work_of_an_earlier_version_is_not_used(
    begun: Path, two: tuple[Path, Path], tmp_path: Path, make_config: Config, reads: list[str]
) -> None:
    job = json.loads((begun / "_work" / "job.json").read_text())
    inputs = [{"path": path.name, "size": path.stat().st_size, "sha256": "00" * 32} for path in two]
    del job["format"]
    (begun / "_work" / "job.json").write_text(json.dumps({**job, "inputs": inputs}))
    (begun / "_work" / "plan.json").write_text(json.dumps({"shards": ["train/data-00000-of-00001.arrow"]}))
    with pytest.raises(UserError, match="was begun with seed 0, not 1"):
        run_preprocess(make_config(*two, shards=4, seed=1), str(begun))
    told: list[str] = []
    run_preprocess(make_config(*two, shards=4), str(begun), notice=told.append)
    (line,) = told
    assert "was begun by an earlier version of tokenfree" in line
    assert line.endswith("It starts again")
    assert sorted(reads) == ["one.jsonl", "two.jsonl"]
    run_preprocess(make_config(*two, shards=4), str(tmp_path / "fresh"))
    assert contents(begun) == contents(tmp_path / "fresh")


def test_another_config_and_other_inputs_are_refused(
    begun: Path, two: tuple[Path, Path], make_config: Config, reads: list[str]
) -> None:
    with pytest.raises(UserError, match=r"was begun with shards 4, not 5"):
        run_preprocess(make_config(*two, shards=5), str(begun))
    with pytest.raises(UserError, match=r"was begun with the input two\.jsonl, which is not given now"):
        run_preprocess(make_config(two[0], shards=4), str(begun))
    assert reads == []


def test_an_input_that_changes_while_it_is_read_is_no_result(
    two: tuple[Path, Path], tmp_path: Path, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    hash_stream = files.hash_stream

    def meanwhile(file: Any) -> str:
        sha256 = hash_stream(file)
        if file.name == str(two[0]):
            os.utime(two[0], (1, 1))
        return sha256

    with monkeypatch.context() as patched:
        patched.setattr(files, "hash_stream", meanwhile)
        with pytest.raises(
            JobError, match=r"one\.jsonl: changed while it was read; give the same command again"
        ):
            run_preprocess(make_config(*two), str(tmp_path / "out"))
    assert not (tmp_path / "out" / "manifest.json").exists()
    run_preprocess(make_config(*two), str(tmp_path / "out"), notice=lambda _: None)
    verify(str(tmp_path / "out"))


@pytest.fixture
def later_id_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat `id_column` as a key that was added later, so that a job at its default does not record it."""
    monkeypatch.setattr(job_inputs, "LATER_FIELDS", ("id_column",))


def test_later_fields_leave_a_begun_job_as_it_is(
    later_id_column: None, begun: Path, two: tuple[Path, Path], make_config: Config, reads: list[str]
) -> None:
    assert "id_column" not in json.loads((begun / "_work" / "job.json").read_text())["config"]
    with pytest.raises(UserError, match='was begun with id_column "id", not "key"; give'):
        run_preprocess(make_config(*two, shards=4, id_column="key"), str(begun))
    run_preprocess(make_config(*two, shards=4), str(begun))
    assert reads == []
