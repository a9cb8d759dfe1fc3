"""A bit that flips in the work of a killed job is in no output of the resumed job."""

import contextlib
import dataclasses
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenfree.core.errors import JobError
from tokenfree.pipelines import local
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import NearDuplicateConfig, PreprocessConfig, VocabularyConfig, WindowConfig
from tokenfree.preprocess.job import finish as finish_step
from tokenfree.preprocess.job import steps as plan_step
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.preprocess.job.stages import STAGES
from tokenfree.preprocess.shards.build import BuiltShard

HEAD = '<mediawiki version="0.11" xml:lang="en"><siteinfo><dbname>enwiki</dbname></siteinfo>\n'
WORDS = (
    "goose",
    "bread",
    "river",
    "hill",
    "mill",
    "seven",
    "argue",
    "flies",
    "over",
    "north",
    "winter",
    "pond",
)
# All that a later attempt takes from an earlier one, with what stands before the bit that flips; where that
# is nothing, a bit of every byte flips.
TAKEN = {
    "_work/inputs/*.json": b'"size": ',
    "_work/runs/*.json": b'"redirects": ',
    "_work/runs/*[0-9].arrow": b"goose",
    "_work/runs/*.failures.jsonl": b'"reason": "',
    "_work/runs/*.sketches.arrow": b"",
    "_work/near_duplicates/*-band_00.arrow": b"",
    "_work/near_duplicates/*-gone.arrow": b"",
    "_work/near_duplicates.json": b'"file": "_work/near_duplicates/',
    "near_duplicates.jsonl": b'"similarity": 0.',
    "_work/vocabulary.json": b'"size": ',
    "vocabulary/subwords.model": b"goose",
    "vocabulary/subwords.vocab": b"goose",
    "_work/shards/train/*.json": b'"rows": ',
    "train/*.arrow": b"goose",
}
BEFORE_THE_PLAN = {"_work/runs/*.sketches.arrow", "_work/near_duplicates/*-band_00.arrow"}  # who reads them
# What each attempt writes again or compares with the requested settings.
OTHERS = {
    *("_work/near_duplicates/*-band_*", "_work/shards/validation/*", "validation/*.arrow"),
    *(
        "_work/inputs-*.jsonl",
        "_work/splits-*.jsonl",
        "_work/documents.json",
        "_work/plan.json",
        "_work/tasks/*",
        "_work/errors/*",
    ),
    *("_work/job.json", "_work/attempt.json", "_work/templates-*.jsonl", "_work/templates/*"),
}


def write_corpus(folder: Path) -> PreprocessConfig:
    """A dump with near-duplicates and a page that fails, unless it is there."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=120)) for _ in range(6)]
    texts += [f"{text} {'south' if number else 'east'}" for number, text in enumerate(texts[:3])]
    pages = [
        f"<page><title>Goose {n}</title><ns>0</ns><id>{n + 1}</id><revision><id>{n + 100}</id><model>wikitext</model>"
        f"<text>{text}</text></revision></page>\n"
        for n, text in enumerate(texts)
    ]
    dump = folder / "enwiki-pages.xml"
    if not dump.exists():
        dump.write_text(HEAD + "".join(pages) + "<page><title>cut</title><ns>0</ns></page></mediawiki>\n")
    return PreprocessConfig(
        wikipedia=(str(dump),),
        near_duplicates=NearDuplicateConfig(min_similarity=0.8),
        vocabulary=VocabularyConfig(size=300, required_characters="none", algorithm="bpe"),
        validation_fraction=0.3,
    )


def contents(output: Path) -> dict[str, bytes]:
    """All that a finished directory holds."""
    found = {path.relative_to(output).as_posix(): path for path in output.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith("_work/")}


def kill(*_: object) -> None:
    raise JobError("killed")


@contextlib.contextmanager
def killed_at_the_end() -> Iterator[None]:
    """In the block, a job fails in its last stage."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(local, "STAGES", (*STAGES[:-1], STAGES[-1]._replace(function=kill)))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that was killed before its last step, one that was killed before its plan, and what they should have
    made."""
    folder = tmp_path_factory.mktemp("killed")
    config = write_corpus(folder)

    with killed_at_the_end(), pytest.raises(JobError):
        run_preprocess(config, str(folder / "finish"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan_step, "find_near_duplicates", kill)
        with pytest.raises(JobError):
            run_preprocess(config, str(folder / "find_near_duplicates"))
    run_preprocess(config, str(folder / "whole"))
    return folder


@pytest.mark.parametrize(("pattern", "before"), TAKEN.items())
def test_a_flipped_bit_is_not_built_in(pattern: str, before: bytes, folder: Path, tmp_path: Path) -> None:
    killed_at = "find_near_duplicates" if pattern in BEFORE_THE_PLAN else "finish"
    output = Path(shutil.copytree(folder / killed_at, tmp_path / "out"))
    (path,) = output.glob(pattern)
    data = bytearray(path.read_bytes())
    place = data.index(before) + len(before)
    for byte in range(place, place + 1 if before else len(data)):
        data[byte] ^= 1
    path.write_bytes(data)
    run_preprocess(write_corpus(folder), str(output), notice=lambda _: None)
    assert contents(output) == contents(folder / "whole")


def test_no_file_of_the_work_is_forgotten(folder: Path) -> None:
    begun = folder / "finish"
    known = {path for pattern in [*TAKEN, *OTHERS] for path in begun.glob(pattern)}
    assert {path for path in begun.rglob("*") if path.is_file()} <= known


def test_failures_that_are_damaged_at_the_very_end_are_not_collected(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Path(shutil.copytree(folder / "finish", tmp_path / "out"))
    all_shards = finish_step.all_shards

    def damaged(job: PreprocessJob) -> list[BuiltShard]:
        (path,) = output.glob("_work/runs/*.failures.jsonl")
        path.write_bytes(path.read_bytes().replace(b"cut", b"cat"))
        return all_shards(job)

    with monkeypatch.context() as patched:
        patched.setattr(finish_step, "all_shards", damaged)
        with pytest.raises(JobError, match=r"failures\.jsonl: damaged; run the job again"):
            run_preprocess(write_corpus(folder), str(output), notice=lambda _: None)
    run_preprocess(write_corpus(folder), str(output), notice=lambda _: None)
    assert contents(output) == contents(folder / "whole")


@pytest.mark.parametrize("pattern", ["_work/inputs/*.json", "_work/runs/*.json", "_work/shards/*/*.json"])
def test_what_was_written_of_another_is_not_taken(pattern: str, tmp_path: Path) -> None:
    for name in ("first.txt", "second.txt"):
        (tmp_path / name).write_text(f"The goose argues over the {name[:-4]} bread.\n" * 40)
    config = PreprocessConfig(
        books=(str(tmp_path / "*.txt"),),
        vocabulary=VocabularyConfig(size=290, required_characters="none", algorithm="bpe"),
        split_bytes=1000,
    )
    config = dataclasses.replace(config, validation_fraction=0.3, window=WindowConfig(max_characters=64))
    run_preprocess(config, str(tmp_path / "whole"))

    with killed_at_the_end(), pytest.raises(JobError):
        run_preprocess(config, str(tmp_path / "out"))
    one, other = sorted((tmp_path / "out").glob(pattern))[:2]
    first, second = one.read_bytes(), other.read_bytes()
    assert first != second
    one.write_bytes(second)
    other.write_bytes(first)
    run_preprocess(config, str(tmp_path / "out"))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
