"""Errors of steps reach the caller as they were raised, in whichever process, on whichever runner."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.job.finish import finish
from tokenfree.preprocess.job.job import ATTEMPT, ERRORS, PreprocessJob, noted_error
from tokenfree.preprocess.job.stages import STAGES, Stage, run_if_current


@pytest.fixture
def job(tmp_path: Path) -> PreprocessJob:
    Storage.at(str(tmp_path)).write_json(ATTEMPT, {"id": "1"})
    return PreprocessJob(str(tmp_path), PreprocessConfig(), "", "", "", "", attempt="1")


def note(job: PreprocessJob, index: int, error: Exception) -> None:
    def honk(job: PreprocessJob, index: int) -> None:
        raise error

    with pytest.raises(type(error)):
        run_if_current(honk, job, index)


def test_an_error_comes_back_with_its_class_and_its_whole_message(job: PreprocessJob) -> None:
    assert run_if_current(lambda job, index: index, job, 3) == 3
    assert noted_error(job.storage) is None
    message = "no goose\n [while running 'x'] tokenfree.core.errors.JobError: \\n 雁"
    note(job, 3, UserError(message))
    found = noted_error(job.storage)
    assert type(found) is UserError
    assert str(found) == message
    job.storage.remove(ERRORS)
    assert noted_error(job.storage) is None


def test_of_several_the_users_mistake_comes_first(job: PreprocessJob) -> None:
    note(job, 1, ZeroDivisionError("a bug"))
    found = noted_error(job.storage)
    assert isinstance(found, JobError)
    assert "the job failed (ZeroDivisionError: a bug); what is finished is kept" in str(found)
    note(job, 2, UserError("no bread"))
    assert str(noted_error(job.storage)) == "no bread"
    assert len(job.storage.names(ERRORS)) == 2


def test_a_directory_that_cannot_be_written_to_is_told_without_a_note(
    job: PreprocessJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(storage: Storage, name: str) -> Any:
        raise UserError(f"{storage.url}: cannot write here")

    monkeypatch.setattr(Storage, "new_file", refuse)
    note(job, 1, UserError("cannot write here either"))
    assert str(noted_error(job.storage)).endswith("cannot write here")


@pytest.mark.parametrize("engine", [{"workers": 1}, {"workers": 2}, {"runner": "beam"}])
def test_the_users_mistake_comes_out_of_any_process(
    corpus: Path, tmp_path: Path, make_config: Any, engine: dict[str, Any]
) -> None:
    config = make_config(
        corpus, vocabulary=VocabularyConfig(size=300, required_characters="none", character_coverage=1)
    )
    with pytest.raises(UserError) as caught:
        run_preprocess(config, str(tmp_path / "out"), **engine)
    assert str(caught.value).startswith(
        "vocabulary.size: 300 is too small for the characters of this corpus; set it to"
    )
    assert str(caught.value).endswith("or lower vocabulary.character_coverage")


def no_number(job: PreprocessJob) -> int:
    raise UserError("no plan [while running 'x']")


@pytest.mark.parametrize(("runner", "module"), [("direct", "local"), ("beam", "transforms")])
def test_a_mistake_that_counting_tasks_finds_comes_out_whole(
    runner: str,
    module: str,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(f"tokenfree.pipelines.{module}.STAGES", [Stage("count", no_number, finish), *STAGES])
    with pytest.raises(UserError, match=r"^no plan \[while running 'x'\]$"):
        run_preprocess(make_config(corpus), str(tmp_path / "out"), runner=runner)


@pytest.mark.parametrize("runner", ["direct", "beam"])
def test_an_interrupt_in_a_step_is_one_of_the_command(
    runner: str,
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("tokenfree.preprocess.job.steps.train_in_subprocess", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_preprocess(make_config(corpus), str(tmp_path / "out"), runner=runner)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 100 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_one_line_of_two_workers(
    small_disk: Path, tmp_path: Path, make_corpus: Any, make_config: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    make_corpus(tmp_path / "books.jsonl", 400)
    with pytest.raises(
        UserError, match=r"cannot write here \(.*No space left on device.*free space"
    ) as error:
        run_preprocess(make_config(tmp_path / "books.jsonl"), str(small_disk / "out"), workers=2)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_what_a_step_refuses_is_told_by_the_caller_alone(
    tmp_path: Path, corpus: Path, make_config: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    config = make_config(corpus, vocabulary=VocabularyConfig(size=3))
    with pytest.raises(UserError, match="too small"):
        run_preprocess(config, str(tmp_path / "out"), workers=2)
    assert capfd.readouterr() == ("", "")
