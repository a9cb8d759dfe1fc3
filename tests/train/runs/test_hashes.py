"""`verify` of runs and sweeps: every bit of a finished one, and what a checkpoint commits of one that still trains."""

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
import yaml

from tokenfree.core.errors import JobError
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import check_finished, rewriting, write_sealed
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import CheckpointState
from tokenfree.train.runs.hashes import is_results_folder, remove_hashes, verify_folder, write_hashes
from tokenfree.workflows.cli import main

SMALL = 35  # bytes of a file of which every bit is flipped
STATE = CheckpointState(3, 0, "recipe", "manifest", None, {"seed": 0}, 1)


def save(folder: Path, *steps: int) -> None:
    parts = {"model": {"w": torch.arange(9.0)}, "optimizer": {"w|exp_avg": torch.ones(2)}}
    for step in steps:
        checkpoints.write(folder / "checkpoints" / checkpoints.checkpoint_name(step), parts, STATE)


def make_run(folder: Path) -> Path:
    """What a finished run has, except its hashes."""
    save(folder, 2, 3)
    (folder / "config.yaml").write_text(yaml.safe_dump({"recipe": {}}))
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n')
    (folder / "events.jsonl").write_text('{"event": "start", "step": 0}\n{"event": "complete", "step": 3}\n')
    (folder / "result.json").write_text('{"steps": 3}\n')
    for name in ("tensorboard/events.out", "incidents/batch_00000001.json", "ray/worker.log", "wandb/x"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("{}")
    for lock in ("lock", "lock.worker"):
        (folder / lock).touch()
    return folder


def make_sweep(folder: Path) -> Path:
    """What an ended sweep has, except its hashes."""
    for trial in ("trial_000", "trial_001"):
        save(folder / "trials" / trial, 3)
        (folder / "trials" / trial / "lock").touch()
    (folder / "sweep.yaml").write_text(yaml.safe_dump({"recipe": {}}))
    for name in ("journal.jsonl", "trials.jsonl", "skipped.json"):
        (folder / name).write_text('{"trial": 1}\n')
    (folder / "best.yaml").write_text("train: {seed: 1}\n")
    (folder / "sweep.csv").write_text("trial,state\ntrial_000,finished\n")
    (folder / "lock").touch()
    return folder


@pytest.fixture(params=[make_run, make_sweep])
def finished(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = request.param(tmp_path / "results")
    write_hashes(str(folder))
    return folder


def covered_files(folder: Path) -> Iterator[tuple[Path, str, bytes]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and "lock" not in path.name and not name.startswith(("ray/", "wandb/")):
            yield path, name, path.read_bytes()


def bits_to_flip(data: bytes) -> Sequence[int]:
    bits = range(8 * len(data))
    return bits if len(data) <= SMALL else random.Random(len(data)).sample(bits, 20)


def flipped(data: bytes, bit: int) -> bytes:
    other = bytearray(data)
    other[bit // 8] ^= 1 << bit % 8
    return bytes(other)


def test_a_finished_folder_is_good_and_wholly_covered(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = verify_folder(str(finished))
    assert (found.complete, found.unhashed) == (True, ())
    assert len(found.checkpoints) == 2
    assert main(["verify", str(finished)]) == 0
    assert capsys.readouterr().out == f"{finished}: good: complete, 2 checkpoints\n"
    (finished / "report.html").write_text("geese")
    assert verify_folder(str(finished)).unhashed == ("report.html",)
    assert main(["verify", str(finished), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unhashed"] == ["report.html"]


def test_every_flipped_bit_of_a_finished_folder_is_named(finished: Path) -> None:
    for path, name, data in covered_files(finished):
        for bit in bits_to_flip(data):
            path.write_bytes(flipped(data, bit))
            with pytest.raises(JobError) as caught:
                verify_folder(str(finished))
            assert str(caught.value).startswith(f"{name}: "), bit
        path.write_bytes(data)
    verify_folder(str(finished))


def test_every_file_of_a_finished_folder_that_is_gone_or_emptied_is_named(finished: Path) -> None:
    assert len(list(covered_files(finished))) > 12
    for path, name, data in covered_files(finished):
        for damaged in (None, b""):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            with pytest.raises(JobError) as caught:
                verify_folder(str(finished))
            assert str(caught.value).startswith(f"{name}: ")
            assert main(["verify", str(finished)]) == 1
        path.write_bytes(data)
    shutil.rmtree(next(finished.rglob("checkpoints/step_00000003")))
    with pytest.raises(JobError, match=r"step_00000003/COMMIT: missing"):
        verify_folder(str(finished))


def test_what_a_checkpoint_commits_is_checked_while_a_run_trains(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "result.json").unlink()
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "lo')  # a line is being written
    found = verify_folder(str(run))
    assert (found.complete, len(found.checkpoints)) == (False, 2)
    for path, name, data in covered_files(run):
        if name.startswith("checkpoints/"):
            for bit in bits_to_flip(data):
                path.write_bytes(flipped(data, bit))
                with pytest.raises(JobError, match=rf"{path.parent.name}/.*damaged"):
                    verify_folder(str(run))
            path.write_bytes(data)
    (run / "config.yaml").write_text("{")
    with pytest.raises(JobError, match=r"^config\.yaml: damaged"):
        verify_folder(str(run))


def test_files_that_are_written_again_get_new_hashes_and_the_others_keep_theirs(finished: Path) -> None:
    tables = [path for path in (finished / "sweep.csv", finished / "result.json") if path.exists()]
    other = next(path for path in (finished / "journal.jsonl", finished / "metrics.jsonl") if path.exists())
    storage, names = Storage.at(str(finished)), [path.name for path in tables]
    with rewriting(storage, names):
        for path in tables:
            path.write_text("new")
        assert set(verify_folder(str(finished)).unhashed) == set(names)  # as after a kill
        check_finished(finished)
    assert verify_folder(str(finished)).unhashed == ()
    other.write_text("geese")
    with rewriting(storage, names):
        pass
    with pytest.raises(JobError, match=rf"^{other.name}: damaged"):
        verify_folder(str(finished))


def test_hashes_that_were_not_written_yet_are_missed(finished: Path) -> None:
    remove_hashes(str(finished))
    with pytest.raises(JobError, match=r"^hashes\.json: missing; .*give its command again"):
        verify_folder(str(finished))


def test_no_name_in_the_hashes_leads_out_of_the_folder(finished: Path) -> None:
    write_sealed(Storage.at(str(finished)), "hashes.json", {"files": {"../x": "00"}})
    with pytest.raises(JobError, match=r"^hashes\.json: damaged"):
        verify_folder(str(finished))


def test_what_is_a_run_or_a_sweep_shows_with_any_of_its_files_gone(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert all(is_results_folder(names - {gone}) for gone in names)
    assert not is_results_folder({"manifest.json", "train", "_SUCCESS"})
