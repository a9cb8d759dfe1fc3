"""The transforms in a custom pipeline on Prism and Flink, and the metrics that Flink shows."""

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
from tests.pipelines.test_transforms import of_manifest
from tokenfree.pipelines.beam import runner_options
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.transforms import ReadDocuments, WriteShards
from tokenfree.preprocess.config import FilterConfig, PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.records import Document
from tools.engines import fetch
from tools.engines.flink import FlinkCluster, flink_cluster

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(3600)]


def is_long(document: Document) -> bool:
    return len(document.text) > 1000


def write_long_articles(config: PreprocessConfig, output: Path, runner: str, flags: Sequence[str]) -> None:
    with beam.Pipeline(options=runner_options(runner, None, flags)) as pipeline:
        read: Any = pipeline | ReadDocuments(config)
        _ = read.documents | beam.Filter(is_long) | WriteShards(replace(config, wikipedia=()), str(output))


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


def test_long_articles_on_prism_and_flink(
    config: PreprocessConfig, flink: FlinkCluster, tmp_path: Path
) -> None:
    options = flink.options()
    engines = {
        "beam": [],
        "prism": [f"--prism_location={fetched(fetch.prism())}"],
        "flink": options[options.index("--") + 1 :],
    }
    for runner, flags in engines.items():
        write_long_articles(config, tmp_path / runner, runner, flags)
    wanted = shards(tmp_path / "beam")
    assert len(wanted) > 3
    assert shards(tmp_path / "prism") == wanted
    assert shards(tmp_path / "flink") == wanted
    assert flink_counters(flink) == +of_manifest(load_manifest(str(tmp_path / "flink")))


def test_an_own_filter_drops_the_same_documents(
    config: PreprocessConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the command, in a pool of workers next to Flink, and in processes of Prism."""
    (tmp_path / "my_steps.py").write_text(EXAMPLE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{REPOSITORY}")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    filters = FilterConfig(also=({"name": "my_steps.LongWords", "max_letters": 16},))
    config = replace(config, filters=filters, keep_dropped=True)
    direct = run_preprocess(config, "direct", trust_code=True)
    assert direct.counters["filtered"]["long_words"] > 5
    (tmp_path / "flink-files").mkdir()
    flags = [f"--prism_location={fetched(fetch.prism())}"]
    run_preprocess(config, "prism", runner="prism", beam_options=flags, trust_code=True)
    with flink_cluster(
        fetched(fetch.flink()), fetched(fetch.job_server("flink")), tmp_path / "flink-files"
    ) as cluster:
        options = cluster.options()
        flags = options[options.index("--") + 1 :]
        run_preprocess(config, "flink", runner="flink", workers=2, beam_options=flags, trust_code=True)
    assert contents(tmp_path / "prism") == contents(tmp_path / "direct")
    assert contents(tmp_path / "flink") == contents(tmp_path / "direct")


def test_flink_shows_the_counters_of_the_manifest(
    config: PreprocessConfig, flink: FlinkCluster, tmp_path: Path
) -> None:
    options = flink.options()
    flags = options[options.index("--") + 1 :]
    manifest = run_preprocess(config, str(tmp_path / "out"), runner="flink", workers=2, beam_options=flags)
    assert flink_counters(flink) == +of_manifest(manifest)
