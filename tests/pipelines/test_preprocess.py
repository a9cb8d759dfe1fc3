"""The whole job: the same bytes on every way to run it, counts that add up, refusals in one line."""

import errno
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pytest

from tokenfree.core import storage as storage_module
from tokenfree.core.errors import JobError, UserError
from tokenfree.pipelines.dry_run import describe_plan
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.progress import Progress
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.preprocess.records import Document

Config = Callable[..., PreprocessConfig]
Shards = Callable[[Path], dict[str, bytes]]
load: Any = datasets.load_from_disk


def test_datasets_opens_the_output_whole_and_by_split(made: Path) -> None:
    whole = load(str(made))
    manifest = load_manifest(str(made))
    assert {name: split.num_rows for name, split in whole.items()} == {
        name: split.rows for name, split in manifest.splits.items()
    }
    row = load(str(made))["train"][0]
    assert row["codepoints"] == [ord(character) for character in row["text"]]
    assert load(str(made / "validation")).num_rows == manifest.splits["validation"].rows


def test_every_page_is_accounted_for_and_equal_texts_are_kept_once(made: Path, corpus: Path) -> None:
    counters = load_manifest(str(made)).counters
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    texts = {(row["language"], row["text"]) for row in rows}
    assert (counters["pages"], counters["documents"], counters["duplicates"]) == (len(rows), len(texts), 6)
    documents = [row["document"] for split in load(str(made)).values() for row in split]
    assert "books:books.jsonl:d8" in documents
    assert "books:books.jsonl:d9" not in documents  # of two equal texts the smaller id stays
    assert set(made.iterdir()) >= {
        made / name for name in ("README.md", "_SUCCESS", "manifest.json", "vocabulary")
    }
    assert not {"_work", "_tmp"} & {path.name for path in made.iterdir()}


def test_shards_hold_one_language_each_in_sorted_order_and_rows_by_key(made: Path) -> None:
    for name, split in load_manifest(str(made)).splits.items():
        languages = [shard.language for shard in split.shards]
        assert languages == sorted(languages)
        total = len(split.shards)
        assert [shard.path for shard in split.shards] == [
            f"{name}/data-{number:05}-of-{total:05}.arrow" for number in range(total)
        ]
    assert len(load_manifest(str(made)).splits["train"].shards) > 3
    texts: dict[str, str] = {}
    for row in load(str(made))["train"]:
        texts.setdefault(row["document"], row["language"])
    assert list(texts.values()) == sorted(texts.values())


def test_split_size_changes_no_byte(
    made: Path, corpus: Path, tmp_path: Path, make_config: Config, read_shards: Shards
):
    run_preprocess(make_config(corpus, split_bytes=4_000), str(tmp_path / "out"))
    assert read_shards(tmp_path / "out") == read_shards(made)
    assert load_manifest(str(tmp_path / "out")).fingerprint == load_manifest(str(made)).fingerprint


@pytest.mark.parametrize("workers", [2, 4])
def test_processes_and_any_order_of_inputs_change_no_byte(
    workers: int,
    tmp_path: Path,
    make_corpus: Callable[..., list],
    make_config: Config,
    read_shards: Shards,
    monkeypatch,
):
    first, second = tmp_path / "a" / "one.jsonl", tmp_path / "a" / "two.jsonl"
    first.parent.mkdir()
    make_corpus(first, 40)
    make_corpus(second, 40, seed=1)
    alone = run_preprocess(make_config(first, second), str(tmp_path / "alone"))
    monkeypatch.chdir(tmp_path)  # a directory from which our packages cannot be imported
    both = run_preprocess(make_config(second, first, split_bytes=5_000), "both", workers=workers)
    assert read_shards(tmp_path / "both") == read_shards(tmp_path / "alone")
    assert both.counters == alone.counters


def test_beam_in_this_process_changes_no_byte(
    made: Path, corpus: Path, tmp_path: Path, make_config: Config, read_shards: Shards
) -> None:
    run_preprocess(make_config(corpus, split_bytes=5_000), str(tmp_path / "out"), runner="beam")
    assert read_shards(tmp_path / "out") == read_shards(made)


def test_memory_output_has_the_same_bytes(made: Path, corpus: Path, make_config: Config) -> None:
    manifest = run_preprocess(make_config(corpus), "memory://test-output/data")
    assert manifest.fingerprint == load_manifest(str(made)).fingerprint
    shard = manifest.splits["train"].shards[0]
    data = fsspec.filesystem("memory").cat_file(f"/test-output/data/{shard.path}")
    assert hashlib.sha256(data).hexdigest() == shard.sha256
    verify("memory://test-output/data")
    with pytest.raises(UserError, match="--workers 1"):
        run_preprocess(make_config(corpus), "memory://test-output/two", workers=2)


def test_a_finished_job_says_so_and_changes_nothing(made: Path, corpus: Path, make_config: Config) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    seen: list[Progress] = []
    manifest = run_preprocess(make_config(corpus, split_bytes=9_999), str(made), progress=seen.append)
    assert [progress.stage for progress in seen] == ["complete"]
    assert manifest == load_manifest(str(made))
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*")} == before


def test_another_config_or_other_inputs_are_refused_by_name(
    made: Path, corpus: Path, tmp_path: Path, make_config: Config, make_corpus: Callable[..., list]
) -> None:
    vocabulary = VocabularyConfig(
        size=330, required_characters="none", sample_characters=20_000, character_coverage=0.98
    )
    with pytest.raises(UserError, match=r"vocabulary\.size 320, not 330.*--output"):
        run_preprocess(make_config(corpus, vocabulary=vocabulary), str(made))
    other = tmp_path / "books.jsonl"
    make_corpus(other, 20)
    with pytest.raises(UserError, match=r"another content of the input books\.jsonl"):
        run_preprocess(make_config(other), str(made))
    more = tmp_path / "more.jsonl"
    more.write_bytes(corpus.read_bytes())
    with pytest.raises(UserError, match=r"no input more\.jsonl"):
        run_preprocess(make_config(corpus, more), str(made))


def test_a_directory_with_foreign_files_is_refused_and_left_alone(
    corpus: Path, tmp_path: Path, make_config: Config
):
    (tmp_path / "thesis.tex").write_text("twenty years of work")
    with pytest.raises(UserError, match=r"thesis\.tex.*--output"):
        run_preprocess(make_config(corpus), str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match="is a file; give a directory"):
        run_preprocess(make_config(corpus), str(tmp_path / "thesis.tex"))


def test_inputs_without_a_document_are_refused_and_leave_nothing(
    tmp_path: Path, write_rows, make_config: Config
):
    books = write_rows(tmp_path / "short.jsonl", [{"id": "1", "text": "Too short."}])
    with pytest.raises(UserError, match=r"no document.*1 too_short"):
        run_preprocess(make_config(books), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match=r"missing\.jsonl"):
        run_preprocess(make_config(tmp_path / "missing.jsonl"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_config_that_proves_impossible_may_be_fixed_in_place(
    made: Path, corpus: Path, tmp_path: Path, make_config: Config, read_shards: Shards, monkeypatch
) -> None:
    config = make_config(corpus)
    with pytest.raises(UserError, match=r"vocabulary\.size"):
        run_preprocess(
            make_config(
                corpus,
                vocabulary=VocabularyConfig(size=300, required_characters="none", character_coverage=1),
            ),
            str(tmp_path / "out"),
        )
    reads: list[object] = []
    monkeypatch.setattr(
        "tokenfree.preprocess.job.read.read_split", lambda split: reads.append(split) or iter(())
    )
    run_preprocess(config, str(tmp_path / "out"))
    assert reads == []  # what was read is kept
    assert read_shards(tmp_path / "out") == read_shards(made)


def test_a_full_disk_is_one_line(corpus: Path, tmp_path: Path, make_config: Config, monkeypatch) -> None:
    def full(source: str, target: str) -> None:
        if "train/" in target:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(storage_module.os, "replace", full)
        with pytest.raises(UserError, match=r"cannot write here \(No space left on device\)") as caught:
            run_preprocess(make_config(corpus), str(tmp_path / "out"))
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out" / "_tmp").iterdir())
    run_preprocess(make_config(corpus), str(tmp_path / "out"))
    verify(str(tmp_path / "out"))


def test_a_tiny_corpus_has_both_splits(tmp_path: Path, write_rows, make_config: Config) -> None:
    rows = [
        {"id": str(n), "language": "en", "text": f"Document number {n} is about geese. " * 9}
        for n in range(2)
    ]
    books = write_rows(tmp_path / "two.jsonl", [*rows, {**rows[0], "id": "again"}])
    vocabulary = VocabularyConfig(size=300, required_characters="none", algorithm="bpe")
    for fraction in (0.0001, 0.9999):
        config = make_config(books, validation_fraction=fraction, vocabulary=vocabulary)
        manifest = run_preprocess(config, str(tmp_path / f"out{fraction}"))
        assert {name: split.documents for name, split in manifest.splits.items()} == {
            "train": 1,
            "validation": 1,
        }
        assert manifest.counters["duplicates"] == 1
        verify(str(tmp_path / f"out{fraction}"))
    alone = write_rows(tmp_path / "one.jsonl", rows[:1])
    for fraction in (0.0, 0.9999):
        config = make_config(alone, validation_fraction=fraction, vocabulary=vocabulary)
        manifest = run_preprocess(config, str(tmp_path / f"alone{fraction}"))
        assert {name: split.documents for name, split in manifest.splits.items()} == {"train": 1}


def test_empty_shards_are_not_written(corpus: Path, tmp_path: Path, make_config: Config) -> None:
    manifest = run_preprocess(make_config(corpus, shards=500), str(tmp_path / "out"))
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    assert all(shard.documents >= 1 for shard in shards)
    assert sum(shard.documents for shard in shards) == manifest.counters["documents"]
    assert 500 > len(shards) > 0.8 * manifest.counters["documents"]


def test_without_subword_columns_no_vocabulary_is_trained(
    corpus: Path, tmp_path: Path, make_config: Config
) -> None:
    manifest = run_preprocess(make_config(corpus, columns=("text", "language")), str(tmp_path / "out"))
    assert manifest.vocabulary_sha256 is None
    assert not (tmp_path / "out" / "vocabulary").exists()
    verify(str(tmp_path / "out"))


def test_a_given_model_is_taken_as_it_is(
    made: Path, corpus: Path, tmp_path: Path, make_config: Config
) -> None:
    model = made / "vocabulary" / "subwords.model"
    config = make_config(corpus, vocabulary=VocabularyConfig(model=str(model)))
    manifest = run_preprocess(config, str(tmp_path / "out"))
    assert (tmp_path / "out" / "vocabulary" / "subwords.model").read_bytes() == model.read_bytes()
    assert manifest.fingerprint == load_manifest(str(made)).fingerprint
    assert run_preprocess(config, str(tmp_path / "out")) == manifest
    with pytest.raises(UserError, match=r"vocabulary\.model"):
        run_preprocess(
            make_config(corpus, vocabulary=VocabularyConfig(model="/no/such.model")), str(tmp_path / "new")
        )


def test_a_bug_in_a_step_is_a_job_error_and_the_work_is_kept(
    made: Path, corpus: Path, tmp_path: Path, make_config: Config, read_shards: Shards, monkeypatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr("tokenfree.preprocess.shards.build.iterate_windows", broken)
        with pytest.raises(JobError, match="ZeroDivisionError: a bug"):
            run_preprocess(make_config(corpus), str(tmp_path / "out"))
    reads: list[Document] = []
    monkeypatch.setattr(
        "tokenfree.preprocess.job.read.read_split", lambda split: reads.append(split) or iter(())
    )
    run_preprocess(make_config(corpus), str(tmp_path / "out"))
    assert reads == []  # the runs of the first attempt are taken
    assert read_shards(tmp_path / "out") == read_shards(made)


def test_the_plan_tells_splits_bytes_and_shards(
    corpus: Path, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(corpus, split_bytes=5_000)
    plan = describe_plan(config)
    text = sum(len(json.loads(line)["text"]) for line in corpus.read_text().splitlines())
    assert 0.7 * text < plan.estimated_characters < 1.3 * text
    assert plan.estimated_output_bytes > plan.estimated_characters
    assert plan.estimated_seconds > 0
    assert plan.vocabulary_characters == config.vocabulary.sample_characters
    assert plan.vocabulary_seconds > 0
    size = corpus.stat().st_size
    assert plan.inputs == 1
    assert plan.splits == -(-size // 5_000)
    assert plan.bytes >= size
    assert plan.estimated_shards >= 2
    assert describe_plan(make_config(corpus, shards=3, validation_fraction=0)).estimated_shards == 3
    whole = describe_plan(make_config(corpus, vocabulary=replace(config.vocabulary, sample_characters=10**6)))
    assert whole.vocabulary_characters == round(whole.estimated_characters * (1 - config.validation_fraction))
    none = describe_plan(make_config(corpus, columns=("text",)))
    assert (none.vocabulary_characters, none.vocabulary_seconds) == (0, 0)
    assert plan.estimated_output_bytes > 4 * none.estimated_output_bytes
    size = corpus.stat().st_size
    assert 0.7 * size < plan.estimated_disk_bytes - plan.estimated_output_bytes < 1.3 * size
    # With merges, the text is there twice.
    monkeypatch.setattr("tokenfree.pipelines.dry_run.MERGED_RUNS", 5)
    many = describe_plan(make_config(corpus, columns=("document",), split_bytes=5_000))
    assert many.estimated_output_bytes == 0
    assert 1.7 < many.estimated_disk_bytes / none.estimated_output_bytes < 2.6
