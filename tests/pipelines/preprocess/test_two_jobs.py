"""Two commands that preprocess into one directory: one does, whatever the storage."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tokenfree.core import locks as store_lock
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import lock
from tokenfree.core.locks import claimed
from tokenfree.core.storage import Storage
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import MANIFEST, load_manifest
from tokenfree.preprocess.job import steps as build_step
from tokenfree.preprocess.job.job import JOB, WORK
from tokenfree.preprocess.sources.splits import plan_splits

MakeConfig = Callable[..., PreprocessConfig]
REFUSED = "another command writes into it. Wait for it or give another output"


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "BEAT", 0.5)


# Stores are alike once a second job was refused in each.
each_kind = pytest.mark.parametrize("output", ["path", "s3", "memory"], indirect=True)
path_and_store = pytest.mark.parametrize(
    "output", ["path", "memory", pytest.param("s3", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture
def output(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory that is not there yet, on each kind of storage."""
    if request.param == "path":
        return str(tmp_path / "out")
    return f"{request.getfixturevalue('bucket')}/out" if request.param == "s3" else f"memory://two/{tmp_path}"


@each_kind
def test_the_second_is_refused_until_the_first_has_ended(
    output: str, corpus: Path, make_config: MakeConfig, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, refused = build_step.build_shard, []

    def build_while_another_comes(*arguments: Any, **options: Any) -> Any:
        if refused:
            return build(*arguments, **options)
        with pytest.raises(UserError, match=REFUSED) as error:
            run_preprocess(make_config(corpus), output)
        refused.append(error)
        return build(*arguments, **options)

    monkeypatch.setattr(build_step, "build_shard", build_while_another_comes)
    manifest = run_preprocess(make_config(corpus), output)
    assert refused
    assert manifest.fingerprint == load_manifest(str(made)).fingerprint
    names = set(Storage.at(output).names())
    assert not {WORK, "_tmp"} & names
    assert ("_lock" in names) == (not Storage.at(output).is_local)  # a number that says that it is free
    assert run_preprocess(make_config(corpus), output) == manifest


@path_and_store
def test_a_finished_directory_is_read_whoever_holds_it(
    output: str, corpus: Path, make_config: MakeConfig
) -> None:
    manifest = run_preprocess(make_config(corpus), output)
    storage = Storage.at(output)
    with claimed(storage):
        assert run_preprocess(make_config(corpus), output) == manifest
        storage.write_json(f"{WORK}/left", {})  # of one that was killed as it tidied
        with pytest.raises(UserError, match=REFUSED):
            run_preprocess(make_config(corpus), output)
    assert run_preprocess(make_config(corpus), output) == manifest
    assert WORK not in storage.names()


@path_and_store
def test_one_that_was_finished_by_another_just_now_is_not_made_again(
    output: str, corpus: Path, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def plan_while_another_makes_it(*arguments: Any) -> Any:
        monkeypatch.setattr("tokenfree.pipelines.preprocess.plan_splits", plan_splits)
        made.append(run_preprocess(make_config(corpus), output))
        return []

    monkeypatch.setattr("tokenfree.pipelines.preprocess.plan_splits", plan_while_another_makes_it)
    assert run_preprocess(make_config(corpus), output) == made[0]
    assert Storage.at(output).read_json(JOB) is None


def test_a_command_whose_store_was_taken_over_commits_nothing_more(
    bucket: str, corpus: Path, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, build = Storage.at(f"{bucket}/out"), build_step.build_shard

    def build_as_another_takes_over(*arguments: Any, **options: Any) -> Any:
        storage.write_json(f"{store_lock.LOCK}/00000002", {"host": "another machine"})
        return build(*arguments, **options)

    monkeypatch.setattr(build_step, "build_shard", build_as_another_takes_over)
    with pytest.raises(JobError, match="out was taken over by another command on another machine"):
        run_preprocess(make_config(corpus), storage.url)
    assert not {"train", "validation", MANIFEST} & set(storage.names())
    assert storage.names(store_lock.LOCK) == ["00000002"]


def test_nothing_is_left_where_nothing_was_made(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path / "out"))
    with claimed(storage):
        assert storage.names() == ["_lock"]
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import sys, time
from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.core.locks import claimed
storage, entries = Storage.at(sys.argv[1]), 0
end = time.monotonic() + 2
while time.monotonic() < end:
    try:
        with claimed(storage):
            open(sys.argv[2], "x").close()
            __import__("os").remove(sys.argv[2])
            entries += 1
    except UserError:
        pass
print(entries)
"""


def test_a_lock_file_that_is_removed_lets_no_two_in(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "out"), str(tmp_path / "inside")]
    processes = [subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) for _ in range(3)]
    entries = [int(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert all(entries)
    assert not (tmp_path / "out").exists()


def test_a_place_where_no_lock_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="a file stands where a directory"),
        claimed(Storage.at(str(tmp_path / "file" / "out"))),
    ):
        pass
    with (
        lock(tmp_path / "_lock"),
        pytest.raises(UserError, match=REFUSED),
        claimed(Storage.at(str(tmp_path))),
    ):
        pass
