"""Inputs added to a finished directory: the bytes of a job from nothing, only what changed done again, nothing lost."""

import json
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from tokenfree.pipelines import addition as pipeline
from tokenfree.pipelines.addition import run_addition
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.preprocess.job import build_step, hash_step, read_step
from tokenfree.preprocess.job.reuse import addition, pages_file

Config = Callable[..., PreprocessConfig]
HEAD = """<mediawiki xml:lang="en"><siteinfo><dbname>{database}</dbname><namespaces>{names}</namespaces></siteinfo>
"""
PAGE = """  <page><title>Geese {number}</title><ns>0</ns><id>{number}</id><revision><id>{revision}</id>
  <model>wikitext</model><text>'''Geese {number}''' {text}</text></revision></page>
"""
SENTENCE = "argue with [[goose|their neighbours]] about {{lang|fr|pain}} number %d, all day long, and then they sleep. "


def write_dump(
    path: Path,
    database: str = "simplewiki",
    changed: Collection[int] = (),
    pages: int = 30,
    talk: str = "Talk",
) -> Path:
    """A dump of short pages; the `changed` ones have another text and revision."""
    names = f'<namespace key="0"/><namespace key="1">{talk}</namespace>'
    text = HEAD.format(database=database, names=names)
    for number in range(1, pages + 1):
        seed = number + 1000 * (number in changed) + (0 if database == "simplewiki" else 500)
        sentences = "".join(SENTENCE % (seed * 7 + n) for n in range(seed % 5 + 2))
        text += PAGE.format(number=number, revision=seed, text=sentences)
    path.write_text(text + "</mediawiki>\n")
    return path


def contents(output: Path) -> dict[str, bytes]:
    return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def configured(make_config: Config, *dumps: Path, books: tuple[Path, ...] = (), **settings: Any) -> PreprocessConfig:
    vocabulary = VocabularyConfig(
        size=350, required_characters="none", sample_characters=20_000, character_coverage=0.98
    )
    return make_config(*books, wikipedia=tuple(map(str, dumps)), vocabulary=vocabulary, **settings)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "simplewiki-20260101-pages-articles.xml")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "simplewiki-20260201-pages-articles.xml", changed={3, 8}, pages=32)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "ltgwiki-20260101-pages-articles.xml", "ltgwiki")


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the pages that are cleaned."""
    ids: list[str] = []
    clean = pages_file.document_of
    monkeypatch.setattr(pages_file, "document_of", lambda page, filters: ids.append(page.id) or clean(page, filters))
    return ids


def test_a_newer_dump_takes_the_place_of_the_older_one(
    old: Path,
    new: Path,
    other: Path,
    corpus: Path,
    tmp_path: Path,
    make_config: Config,
    cleaned: list[str],
    monkeypatch: Any,
) -> None:
    output, fresh = tmp_path / "out", tmp_path / "fresh"
    run_preprocess(configured(make_config, old, other, books=(corpus,)), str(output), keep_runs=True)
    assert verify(str(output)) == ()
    before = contents(output)
    hashed: list[str] = []
    hash_input = hash_step.hash_input
    monkeypatch.setattr(hash_step, "hash_input", lambda file: hashed.append(file.name) or hash_input(file))
    read: list[str] = []
    read_split = read_step.read_split
    monkeypatch.setattr(read_step, "read_split", lambda split: read.extend(split.names) or read_split(split))
    del cleaned[:]
    told: list[str] = []
    made = run_addition(configured(make_config, new), str(output), notice=told.append)
    assert told == [f"{output}: a newer dump takes the place of {old.name}"]
    assert read == hashed == [new.name]
    assert cleaned == ["simplewiki:3:1003", "simplewiki:8:1008", "simplewiki:31:31", "simplewiki:32:32"]
    assert run_preprocess(configured(make_config, new, other, books=(corpus,)), str(fresh), keep_runs=True) == made
    assert contents(output) == contents(fresh) != before
    assert not list(tmp_path.glob("out.*"))
    verify(str(output))
    stages: list[str] = []
    run_addition(configured(make_config, new), str(output), progress=lambda now: stages.append(now.stage))
    assert stages == ["complete"]


def test_books_and_dumps_of_other_wikis_come_beside(
    old: Path, other: Path, corpus: Path, tmp_path: Path, make_config: Config
) -> None:
    output, fresh = tmp_path / "out", tmp_path / "fresh"
    run_preprocess(configured(make_config, old), str(output), keep_runs=True)
    run_addition(configured(make_config, other), str(output))
    run_addition(configured(make_config, books=(corpus,)), str(output))
    run_preprocess(configured(make_config, old, other, books=(corpus,)), str(fresh), keep_runs=True)
    assert contents(output) == contents(fresh)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the shards that are built."""
    paths: list[str] = []
    build = build_step.build_shard

    def told(storage: Any, task: Any, *args: Any, **named: Any) -> Any:
        paths.append(task.path)
        return build(storage, task, *args, **named)

    monkeypatch.setattr(build_step, "build_shard", told)
    return paths


def test_shards_of_the_same_documents_are_taken(
    old: Path, corpus: Path, tmp_path: Path, make_config: Config, built: list[str]
) -> None:
    """Those of other languages, without subwords, in which all documents have a part; one of them is damaged."""
    output, fresh, columns = tmp_path / "out", tmp_path / "fresh", ("document", "language", "text")
    run_preprocess(configured(make_config, books=(corpus,), columns=columns), str(output), keep_runs=True)
    damaged = sorted((output / "validation").glob("*.arrow"))[-1]  # of Ukrainian
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    del built[:]
    made = run_addition(configured(make_config, old, columns=columns), str(output))
    languages = {shard.path: shard.language for shard in made.shards}
    assert sorted(languages[path] for path in built) == [*(name for name in languages.values() if name == "en"), "uk"]
    run_preprocess(configured(make_config, old, books=(corpus,), columns=columns), str(fresh), keep_runs=True)
    assert contents(output) == contents(fresh)
    verify(str(output))


def test_a_file_that_changed_is_added_by_its_name_again(tmp_path: Path, make_config: Config, make_corpus: Any) -> None:
    output, fresh, path, beside = (tmp_path / name for name in ("out", "fresh", "a.jsonl", "b.jsonl"))
    make_corpus(path, 20, seed=1)
    make_corpus(beside, 20, seed=2)
    run_preprocess(make_config(beside, path), str(output), keep_runs=True)
    make_corpus(path, 30, seed=3)
    run_addition(make_config(path), str(output))
    run_preprocess(make_config(path, beside), str(fresh), keep_runs=True)
    assert contents(output) == contents(fresh)


def test_pages_of_a_site_that_changed_are_cleaned_again(
    old: Path, tmp_path: Path, make_config: Config, cleaned: list[str]
) -> None:
    run_preprocess(configured(make_config, old), str(tmp_path / "out"), keep_runs=True)
    renamed = write_dump(tmp_path / "simplewiki-20260301-pages-articles.xml", talk="Discussion")
    del cleaned[:]
    run_addition(configured(make_config, renamed), str(tmp_path / "out"), notice=lambda _: None)
    assert len(cleaned) == 30


@pytest.mark.parametrize(
    ("ending", "damaged"),
    [("[0-9].arrow", b"neighbours"), ("[0-9].arrow", b""), (".pages.arrow", b""), (".json", b'"pages": 3')],
)
def test_what_is_kept_and_damaged_is_made_again(
    ending: str,
    damaged: bytes,
    old: Path,
    new: Path,
    other: Path,
    tmp_path: Path,
    make_config: Config,
    cleaned: list[str],
) -> None:
    output, fresh = tmp_path / "out", tmp_path / "fresh"
    run_preprocess(configured(make_config, old, other), str(output), keep_runs=True)
    for path in (output / "_work" / "runs").glob(f"*{ending}"):
        data = path.read_bytes()
        path.write_bytes(data.replace(damaged, bytes([damaged[0] ^ 1]) + damaged[1:]) if damaged else data[::-1])
    del cleaned[:]
    run_addition(configured(make_config, new), str(output), notice=lambda _: None)
    assert len(cleaned) == 62
    run_preprocess(configured(make_config, new, other), str(fresh), keep_runs=True)
    assert contents(output) == contents(fresh)


@pytest.mark.parametrize("moment", ["building", "before", "between", "after"])
def test_a_killed_addition_leaves_the_old_directory_or_one_that_goes_on(
    moment: str, old: Path, new: Path, tmp_path: Path, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, fresh = tmp_path / "out", tmp_path / "fresh"
    run_preprocess(configured(make_config, old), str(output), keep_runs=True)
    before = contents(output)

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if moment == "building":
            patched.setattr("tokenfree.preprocess.job.build_step.build_shard", lambda *_, **__: 1 / 0)
        elif moment == "before":
            patched.setattr(pipeline, "take_place", fail)
        elif moment == "between":
            rename = os.rename
            patched.setattr(addition.os, "rename", lambda a, b: fail() if str(a).endswith(".next") else rename(a, b))
        else:
            patched.setattr(addition.shutil, "rmtree", fail)
        with pytest.raises((KeyboardInterrupt, JobError)):
            run_addition(configured(make_config, new), str(output), notice=lambda _: None)
    if moment in ("building", "before"):
        assert contents(output) == before
        verify(str(output))
    run_addition(configured(make_config, new), str(output), notice=lambda _: None)
    run_preprocess(configured(make_config, new), str(fresh), keep_runs=True)
    assert contents(output) == contents(fresh)
    assert not list(tmp_path.glob("out.*"))


def test_what_cannot_be_added_to_is_refused(old: Path, new: Path, tmp_path: Path, make_config: Config) -> None:
    with pytest.raises(UserError, match="no finished data directory"):
        run_addition(configured(make_config, new), str(tmp_path / "none"))
    with pytest.raises(UserError, match="no finished data directory"):
        run_addition(configured(make_config, new), "memory://geese")
    output = tmp_path / "out"
    run_preprocess(configured(make_config, old), str(output))
    assert not (output / "_work").exists()
    with pytest.raises(UserError, match="made without --keep-runs, so there is nothing to add to; give all inputs"):
        run_addition(configured(make_config, new), str(output))
    shutil.rmtree(output)
    run_preprocess(configured(make_config, old), str(output), keep_runs=True)
    with pytest.raises(UserError, match="was made with seed 0, not 1"):
        run_addition(configured(make_config, new, seed=1), str(output))
    assert json.loads((output / "manifest.json").read_text())["config"]["wikipedia"] == [old.name]
    assert not list(tmp_path.glob("out.*"))
