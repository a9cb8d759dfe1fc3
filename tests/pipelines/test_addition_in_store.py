"""Inputs added to a finished directory in a store: the bytes of a job from nothing, whenever it was killed."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tokenfree.pipelines.addition import run_addition
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.store_lock import LOCK
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.preprocess.job import read_step
from tokenfree.preprocess.job.reuse import pages_file

Config = Callable[..., PreprocessConfig]
HEAD = '<mediawiki xml:lang="en"><siteinfo><dbname>simplewiki</dbname><namespaces/></siteinfo>\n'
PAGE = "<page><title>Geese {0}</title><ns>0</ns><id>{0}</id><revision><id>{1}</id><text>{2}</text></revision></page>\n"


def write_dump(path: Path, changed: int | None = None) -> Path:
    texts = [f"'''Geese''' argue about bread {n * (7 if n == changed else 1)}, all day long. " * 5 for n in range(20)]
    path.write_text(HEAD + "".join(PAGE.format(n, n, text) for n, text in enumerate(texts)) + "</mediawiki>\n")
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "simplewiki-20260101-pages-articles.xml")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "simplewiki-20260201-pages-articles.xml", changed=4)


@pytest.fixture
def make_config(make_config: Config) -> Config:
    """Quick settings with room for the characters of the dumps too."""
    vocabulary = VocabularyConfig(
        size=350, required_characters="none", sample_characters=20_000, character_coverage=0.98
    )
    return partial(make_config, vocabulary=vocabulary)


def contents(url: str) -> dict[str, bytes]:
    storage = Storage.at(url)
    return {name: storage.read_bytes(name) for name in storage.find() if not name.startswith(f"{LOCK}/")}


def quiet(_: str) -> None:
    """For notices."""


def test_an_addition_in_a_store_has_the_bytes_of_a_job_from_nothing(
    old: Path, new: Path, corpus: Path, bucket: str, tmp_path: Path, make_config: Config, monkeypatch: Any
) -> None:
    output, fresh = f"{bucket}/out", str(tmp_path / "fresh")
    run_preprocess(make_config(corpus, wikipedia=(str(old),)), output, keep_runs=True)
    read: list[str] = []
    read_split = read_step.read_split
    monkeypatch.setattr(read_step, "read_split", lambda split: read.extend(split.names) or read_split(split))
    cleaned: list[str] = []
    clean = pages_file.document_of
    monkeypatch.setattr(pages_file, "document_of", lambda page, *rest: cleaned.append(page.id) or clean(page, *rest))
    addition = make_config(wikipedia=(str(new),))
    made = run_addition(addition, output, notice=quiet)
    assert (read, cleaned) == ([new.name], ["simplewiki:4:4"])
    monkeypatch.undo()
    assert run_preprocess(make_config(corpus, wikipedia=(str(new),)), fresh, keep_runs=True) == made
    assert contents(output) == contents(fresh)
    assert verify(output) == ()
    assert contents(f"{output}.next") == {}
    stages: list[str] = []
    run_addition(addition, output, progress=lambda now: stages.append(now.stage))
    assert stages == ["complete"]


def test_an_addition_that_was_killed_while_it_copied_goes_on(
    old: Path, new: Path, bucket: str, tmp_path: Path, make_config: Config, monkeypatch: Any
) -> None:
    output, fresh = f"{bucket}/out", str(tmp_path / "fresh")
    run_preprocess(make_config(wikipedia=(str(old),)), output, keep_runs=True)
    fs = Storage.at(bucket).fs
    copy = fs.cp_file

    def killed(source: str, target: str) -> None:
        if target.endswith("/out/manifest.json"):
            raise KeyboardInterrupt
        copy(source, target)

    monkeypatch.setattr(fs, "cp_file", killed)
    with pytest.raises(KeyboardInterrupt):
        run_addition(make_config(wikipedia=(str(new),)), output, notice=quiet)
    with pytest.raises(UserError, match="no finished data directory"):
        load_manifest(output)
    monkeypatch.setattr(fs, "cp_file", copy)
    run_addition(make_config(wikipedia=(str(new),)), output, notice=quiet)
    run_preprocess(make_config(wikipedia=(str(new),)), fresh, keep_runs=True)
    assert contents(output) == contents(fresh)
    assert contents(f"{output}.next") == {}


def test_kept_shards_and_damaged_runs_in_a_store(
    old: Path, corpus: Path, bucket: str, tmp_path: Path, make_config: Config
) -> None:
    output, fresh, columns = f"{bucket}/out", str(tmp_path / "fresh"), ("document", "language", "text")
    run_preprocess(make_config(corpus, columns=columns), output, keep_runs=True)
    storage = Storage.at(output)
    damaged = [
        name for name in storage.find() if name.endswith(".arrow") and ("validation/" in name or "runs/" in name)
    ]
    for name in damaged:
        storage.write_bytes(name, storage.read_bytes(name)[:-1] + b"?")
    run_addition(make_config(wikipedia=(str(old),), columns=columns), output)
    run_preprocess(make_config(corpus, wikipedia=(str(old),), columns=columns), fresh, keep_runs=True)
    assert contents(output) == contents(fresh)
    assert json.loads(contents(output)["_work/kept.json"])["books"] == [str(corpus)]


def test_nothing_is_left_where_there_is_nothing_to_add_to(old: Path, bucket: str, make_config: Config) -> None:
    with pytest.raises(UserError, match="no finished data directory"):
        run_addition(make_config(wikipedia=(str(old),)), f"{bucket}/none")
    assert fsspec.filesystem("s3").find(f"{bucket}/none") == []
