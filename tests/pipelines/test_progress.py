"""Progress is told from what is committed."""

from pathlib import Path
from typing import Any

from pipelines.preprocess import run_preprocess
from pipelines.progress import Progress
from preprocess.manifest import load_manifest


def test_stages_come_in_order_and_end_with_all_done(corpus: Path, tmp_path: Path, make_config: Any) -> None:
    seen: list[Progress] = []
    manifest = run_preprocess(make_config(corpus, split_bytes=2_000), str(tmp_path / "out"), progress=seen.append)
    stages = [progress.stage for progress in seen]
    order = ("read", "vocabulary", "build", "finish")
    assert stages == sorted(stages, key=order.index)
    assert stages[0] == "read"
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    assert seen[-1] == Progress(
        "finish", len(shards), len(shards), sum(shard.bytes for shard in shards), manifest.counters["characters"]
    )
    assert all(progress.done <= progress.total for progress in seen)
    assert load_manifest(str(tmp_path / "out")) == manifest
