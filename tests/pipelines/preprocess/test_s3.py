"""Input and output on the real S3 API, served on this machine."""

from pathlib import Path
from typing import Any

import fsspec
import pytest

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.verify import verify


def test_s3_in_and_out_with_two_processes(made: Path, corpus: Path, bucket: str, make_config: Any) -> None:
    fs = fsspec.filesystem("s3")
    fs.put_file(str(corpus), f"{bucket}/in/books.jsonl")
    config: PreprocessConfig = make_config(f"{bucket}/in/books.jsonl", split_bytes=9_000)
    manifest = run_preprocess(config, f"{bucket}/out", workers=2)
    assert manifest.fingerprint == load_manifest(str(made)).fingerprint
    verify(f"{bucket}/out")
    fs.invalidate_cache()
    names = {name.split("/")[2] for name in fs.find(f"{bucket}/out")}
    assert names >= {"_SUCCESS", "manifest.json", "train", "validation"}
    assert not names & {"_work", "_tmp"}
    assert run_preprocess(config, f"{bucket}/out") == manifest


def test_a_bucket_that_is_not_there_is_one_line(corpus: Path, bucket: str, make_config: Any) -> None:
    with pytest.raises(UserError, match="s3://nowhere/out: cannot write here"):
        run_preprocess(make_config(corpus), "s3://nowhere/out")


def test_puts_that_fail_now_and_then_are_tried_again(
    made: Path, corpus: Path, bucket: str, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = Storage.at(bucket).fs
    put, calls = fs.put_file, [0]

    def throttled(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] % 4 == 1:
            raise OSError(5, "SlowDown: reduce your request rate")
        return put(*arguments, **options)

    monkeypatch.setattr(fs, "put_file", throttled)
    monkeypatch.setattr("tokenfree.core.storage.time.sleep", lambda seconds: None)
    manifest = run_preprocess(make_config(corpus), f"{bucket}/throttled")
    assert calls[0] > 20
    assert manifest.fingerprint == load_manifest(str(made)).fingerprint


def test_a_put_that_fails_for_good_leaves_nothing_under_a_final_name(
    corpus: Path, bucket: str, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = Storage.at(bucket).fs
    put = fs.put_file

    def broken(source: str, target: str, **options: Any) -> Any:
        if target.endswith(".arrow") and "/train/" in target and "_work" not in target:
            raise OSError(5, "the connection broke")
        return put(source, target, **options)

    monkeypatch.setattr(fs, "put_file", broken)
    monkeypatch.setattr("tokenfree.core.storage.time.sleep", lambda seconds: None)
    with pytest.raises((UserError, JobError), match="the connection broke"):
        run_preprocess(make_config(corpus), f"{bucket}/broken")
    names = [name for name in fs.find(f"{bucket}/broken") if "/_work/" not in name]
    assert not [
        name for name in names if name.endswith((".arrow", "manifest.json", "_SUCCESS")) and "/train/" in name
    ]
    assert not [name for name in names if name.endswith("manifest.json")]
