"""The job as a Beam transform in a custom pipeline, and its metrics."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from tests.conftest import REPOSITORY
from tokenfree.core.errors import JobError, UserError
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.transforms import NAMESPACE, CutWindows, Preprocess, ReadDocuments, WriteShards
from tokenfree.preprocess.config import FilterConfig, NearDuplicateConfig, PreprocessConfig
from tokenfree.preprocess.dataset.manifest import Manifest, ShardEntry, load_manifest
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.preprocess.documents.extract import DroppedPage
from tokenfree.preprocess.job import steps
from tokenfree.preprocess.records import Document, Failure


def run(config: PreprocessConfig, output: Path) -> Any:
    """Run the transform, and return the pipeline's result."""
    pipeline = beam.Pipeline("FnApiRunner", PipelineOptions())
    entries = pipeline | Preprocess(config, str(output))
    # They come when it is complete.
    exist = entries | beam.Map(_path) | beam.Map(_exists, str(output)) | beam.Distinct()
    assert_that(exist, equal_to([True]))
    result = pipeline.run()
    result.wait_until_finish()
    return result


def _path(entry: ShardEntry) -> str:
    return entry.path


def _exists(path: str, output: str) -> bool:
    return Path(output, path).exists() and Path(output, "_SUCCESS").exists()


def counters(result: Any) -> Counter[str]:
    """Sum the counters of a result of Beam by name."""
    totals = Counter[str]()
    for counter in result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["counters"]:
        totals[counter.key.metric.name] += counter.result
    return totals


def of_manifest(manifest: Manifest) -> Counter[str]:
    wanted = Counter[str]()
    for name, value in manifest.counters.items():
        if isinstance(value, dict):
            if name != "dropped_templates":
                wanted.update({f"{name}_{reason}": count for reason, count in value.items()})
        else:
            wanted[name] = value
    wanted["bytes"] = sum(shard.bytes for shard in manifest.shards)
    return wanted


def test_metrics_are_the_counters_of_the_manifest(
    corpus: Path, tmp_path: Path, make_config: Any, read_shards: Any
) -> None:
    config = make_config(corpus, split_bytes=20_000, filters=FilterConfig(min_characters=300))
    result = run(config, tmp_path / "out")
    manifest = run_preprocess(config, str(tmp_path / "direct"))
    totals = counters(result)
    assert +totals == +of_manifest(manifest)
    assert totals["pages"] == 60
    assert totals["duplicates"] > 0
    assert totals["filtered_too_short"] > 0
    assert read_shards(tmp_path / "out") == read_shards(tmp_path / "direct")
    (distribution,) = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["distributions"]
    assert distribution.key.metric.name == "milliseconds_per_page"
    assert distribution.committed.count > 1


def test_metrics_of_a_resumed_job_count_what_was_committed(
    corpus: Path, tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, build, calls = make_config(corpus, split_bytes=20_000), steps.build_shard, list[int]()
    with monkeypatch.context() as patched:
        patched.setattr(
            steps, "build_shard", lambda *args, **named: calls.append(1) or build(*args, **named)
            if len(calls) < 3 else 1 / 0
        )  # fmt: skip
        with pytest.raises(JobError):
            run_preprocess(config, str(tmp_path / "out"))
    assert len(calls) == 3
    assert +counters(run(config, tmp_path / "out")) == +of_manifest(load_manifest(str(tmp_path / "out")))


def test_metrics_of_near_duplicates(tmp_path: Path, make_config: Any) -> None:
    """Also of shards without a document."""
    path = tmp_path / "books.jsonl"
    text = " ".join(f"goose {number * number}" for number in range(200))
    path.write_text("".join(f'{{"text": "{text} {number}."}}\n' for number in (1, 2, 3, 3)))
    config = make_config(path, near_duplicates=NearDuplicateConfig(min_similarity=0.8), shards=9)
    totals = counters(run(config, tmp_path / "out"))
    assert +totals == +of_manifest(load_manifest(str(tmp_path / "out")))
    assert (totals["near_duplicates"], totals["duplicates"]) == (2, 1)


def test_a_complete_directory_is_refused(made: Path, corpus: Path, make_config: Any) -> None:
    with pytest.raises(UserError, match=r"already complete; give another directory$"):
        run(make_config(corpus), made)


def _is_english(document: Document) -> bool:
    return document.language == "en"


def write(transform: Any, documents: Any) -> Any:
    return documents | transform


def test_documents_read_and_written_are_the_shards_of_the_job(
    made: Path, corpus: Path, tmp_path: Path, make_config: Any, read_shards: Any
) -> None:
    """However they are bundled."""
    for number, split_bytes in enumerate((3_000, 10**6)):
        config, output = make_config(corpus, split_bytes=split_bytes), tmp_path / str(number)
        pipeline = beam.Pipeline("FnApiRunner", PipelineOptions())
        read: Any = pipeline | ReadDocuments(config)
        entries = read.documents | WriteShards(replace(config, books=()), str(output))
        assert_that(entries | beam.Map(_path) | beam.combiners.Count.Globally(), equal_to([9]))
        result = pipeline.run()
        result.wait_until_finish()
        assert read_shards(output) == read_shards(made)
        assert not verify(str(output))


def test_a_step_between_reading_and_writing(corpus: Path, tmp_path: Path, make_config: Any) -> None:
    """Of documents, then of windows, which become the rows of shards again."""
    config, output = make_config(corpus), tmp_path / "out"
    with beam.Pipeline("FnApiRunner", PipelineOptions()) as pipeline:
        read: Any = pipeline | ReadDocuments(config)
        documents = read.documents | beam.Filter(_is_english)
        windows = documents | CutWindows(replace(config, columns=("document", "language", "text")))
        _ = windows | WriteShards(replace(config, books=()), str(output))
    manifest = load_manifest(str(output))
    assert {shard.language for shard in manifest.shards} == {"en"}
    assert manifest.counters["windows"] == manifest.counters["documents"]
    assert not verify(str(output))


def test_dropped_and_broken_pages_are_tagged(tmp_path: Path, make_config: Any) -> None:
    path = tmp_path / "books.jsonl"
    text = "A goose is a bird that eats bread near a quiet river. " * 9
    path.write_text(json.dumps({"text": text}) + '\n{"text": "short"}\n{"text": \n')
    with beam.Pipeline("FnApiRunner", PipelineOptions()) as pipeline:
        read: Any = pipeline | ReadDocuments(make_config(path))
        assert_that(read.documents | beam.Map(_text), equal_to([text.strip()]), label="documents")
        assert_that(
            read.dropped | "why dropped" >> beam.Map(_reason), equal_to(["too_short"]), label="dropped"
        )
        assert_that(read.failed | beam.Map(_reason), equal_to(["bad_json"]), label="failed")


def test_the_program_of_the_page_runs(tmp_path: Path, test_data: Path) -> None:
    page = (REPOSITORY / "docs" / "pipelines.md").read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    assert len(program.split("\n")) < 35
    (tmp_path / "long_articles.py").write_text(program)
    dump = test_data / "wiki-dumps" / "simplewiki-excerpt.xml"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    words = [sys.executable, "long_articles.py", str(dump), "out"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "ShardEntry(path='train/data-00000-of-00001.arrow'" in done.stdout
    assert not verify(str(tmp_path / "out"))


def _text(document: Document) -> str:
    return document.text


def _reason(page: DroppedPage | Failure) -> str:
    return page.reason


def test_a_finished_directory_is_not_written_to(made: Path, make_config: Any) -> None:
    pipeline = beam.Pipeline("FnApiRunner", PipelineOptions())
    with pytest.raises(UserError):
        write(
            WriteShards(make_config(), str(made)),
            pipeline | beam.Create([Document("a", "en", "", "A goose.")]),
        )
