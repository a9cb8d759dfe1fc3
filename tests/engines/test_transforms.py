"""The transforms in a custom pipeline and own steps on every engine, and the metrics that engines show."""

import base64
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from tests.conftest import REPOSITORY
from tests.engines.conftest import contents, fetched
from tests.pipelines.preprocess.test_own_steps import EXAMPLE
from tests.pipelines.test_transforms import counters, of_manifest
from tokenfree.pipelines.beam import runner_options
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.transforms import ReadDocuments, WriteShards
from tokenfree.preprocess.config import FilterConfig, PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.records import Document
from tools.engines import fetch
from tools.engines.flink import FlinkCluster, flink_cluster
from tools.engines.spark import SparkCluster, spark_cluster

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(3600)]


def is_long(document: Document) -> bool:
    return len(document.text) > 1000


def write_long_articles(config: PreprocessConfig, output: Path, runner: str, flags: Sequence[str]) -> Any:
    """Return Beam's result."""
    with beam.Pipeline(options=runner_options(runner, None, flags)) as pipeline:
        read: Any = pipeline | ReadDocuments(config)
        _ = read.documents | beam.Filter(is_long) | WriteShards(replace(config, wikipedia=()), str(output))
    return pipeline.result


def shards(output: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(output).items() if name.endswith((".arrow", ".model"))}


def flink_counters(cluster: FlinkCluster) -> Counter[str]:
    """Sum the counters of the newest job from Flink's REST interface, by name."""
    job = max(cluster.ask("jobs/overview")["jobs"], key=lambda job: job["start-time"])["jid"]
    accumulators = cluster.ask(f"jobs/{job}/accumulators")["user-task-accumulators"]
    totals = Counter[str]()
    for metric in json.loads(accumulators[0]["value"])["metrics"]["attempted"]:
        labels: dict[str, Any] = metric.get("labels", {})
        if metric["urn"] == "beam:metric:user:sum_int64:v1" and labels["NAMESPACE"] == "tokenfree":
            digits = base64.b64decode(metric["payload"])
            totals[labels["NAME"]] += sum((digit & 127) << 7 * place for place, digit in enumerate(digits))
    return +totals


@pytest.fixture
def config(test_data: Path) -> PreprocessConfig:
    return PreprocessConfig(
        wikipedia=(str(test_data / "wiki-dumps" / "enwiki-2016-shortened.xml.bz2"),),
        vocabulary=VocabularyConfig(size=2000),
        expand_templates=False,
        split_bytes=2_000_000,
        shard_characters=1_000_000,
    )


def prism_flags() -> list[str]:
    return [f"--prism_location={fetched(fetch.prism())}"]


def flags_of(cluster: FlinkCluster | SparkCluster) -> list[str]:
    """The options of Beam for jobs on a cluster."""
    options = cluster.options()
    return options[options.index("--") + 1 :]


def test_long_articles_on_all_engines(
    config: PreprocessConfig, flink: FlinkCluster, spark: SparkCluster, tmp_path: Path
) -> None:
    """A custom pipeline writes the same shards on all; their metrics are the counters of the manifest."""
    engines = {"beam": [], "prism": prism_flags(), "flink": flags_of(flink), "spark": flags_of(spark)}
    for runner, flags in engines.items():
        result = write_long_articles(config, tmp_path / runner, runner, flags)
        assert shards(tmp_path / runner) == shards(tmp_path / "beam")
        expected = +of_manifest(load_manifest(str(tmp_path / runner)))
        assert +counters(result) == expected, runner
        if runner == "flink":
            assert flink_counters(flink) == expected
    assert len(shards(tmp_path / "beam")) > 3


def test_an_own_filter_drops_the_same_documents(
    config: PreprocessConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the command, in processes of Prism, and in pools of workers next to Flink and Spark."""
    (tmp_path / "my_steps.py").write_text(EXAMPLE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{REPOSITORY}")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    filters = FilterConfig(also=({"name": "my_steps.LongWords", "max_letters": 16},))
    config = replace(config, filters=filters, keep_dropped=True)
    direct = run_preprocess(config, "direct", trust_code=True)
    assert direct.counters["filtered"]["long_words"] > 5
    run_preprocess(config, "prism", runner="prism", beam_options=prism_flags(), trust_code=True)
    for name, program, start in (
        ("flink", fetch.flink(), flink_cluster),
        ("spark", fetch.spark(), spark_cluster),
    ):
        folder = tmp_path / f"{name}-files"
        folder.mkdir()
        with start(fetched(program), fetched(fetch.job_server(name)), folder) as cluster:
            run_preprocess(
                config, name, runner=name, workers=2, beam_options=flags_of(cluster), trust_code=True
            )
    for name in ("prism", "flink", "spark"):
        assert contents(tmp_path / name) == contents(tmp_path / "direct"), name


def test_flink_shows_the_counters_of_the_manifest(
    config: PreprocessConfig, flink: FlinkCluster, tmp_path: Path
) -> None:
    manifest = run_preprocess(
        config, str(tmp_path / "out"), runner="flink", workers=2, beam_options=flags_of(flink)
    )
    assert flink_counters(flink) == +of_manifest(manifest)
