"""What `cluster submit` sends: the words as they were given, and the files that --send names."""

from pathlib import Path
from typing import Any

import pytest

from tokenfree.workflows import cli
from tokenfree.workflows.cluster import jobs
from tokenfree.workflows.work.cluster import entrypoint_cpus

STORES = ("--data", "s3://bucket/en", "--output", "s3://bucket/run")


@pytest.fixture
def sent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Ray's client was given; `files` are those of the working directory."""
    given: dict[str, Any] = {}

    class Client:
        def __init__(self, address: str) -> None:
            given["address"] = address

        def submit_job(self, **options: Any) -> str:
            root = Path(options["runtime_env"]["working_dir"])
            files = {
                str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()
            }
            given.update(options, files=files)
            return options["submission_id"]

    monkeypatch.setattr(jobs, "JobSubmissionClient", Client)
    monkeypatch.setattr(jobs.requests, "get", lambda *_, **__: None)
    return given


def submit(*words: str) -> int:
    return cli.main(["cluster", "submit", "--no-wait", *words])


def test_words_run_as_they_are_given(sent: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    words = ("pretrain", "mine.yaml", *STORES, "--datta", "en", "--init_from", "a b", "--", "--flag=d")
    assert submit("--", *words) == 0
    assert sent["entrypoint"] == f"exec tokenfree {' '.join(words).replace('a b', chr(39) + 'a b' + chr(39))}"
    assert sent["files"] == {}
    assert sent["metadata"] == {"recipe": "mine.yaml", "output": "s3://bucket/run"}
    assert (sent["entrypoint_num_cpus"], sent["entrypoint_num_gpus"]) == (1, 0)
    assert (
        capsys.readouterr().out
        == f"runs        on a node with 1 free CPU\njob         {sent['submission_id']}\n"
    )


def test_files_are_sent_under_their_relative_paths(sent: dict[str, Any], folder: Path) -> None:
    for name in ("mine.yaml", "recipes/base.yaml", "parts/__init__.py", "parts/deep/pool.py", "parts/.env",
                 "parts/__pycache__/pool.pyc", "secrets.py", "../outside.yaml"):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    send = ("./mine.yaml", str(folder / "recipes" / "base.yaml"), "parts", "../outside.yaml")
    assert (
        submit(*[word for path in send for word in ("--send", path)], "--", "pretrain", "mine.yaml", *STORES)
        == 0
    )
    assert sorted(sent["files"]) == ["mine.yaml", "outside.yaml", "parts/__init__.py", "parts/deep/pool.py",
                                     "recipes/base.yaml"]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--send", "none.yaml", "--", "pretrain", "none.yaml", *STORES),
            "--send none.yaml: no such file or folder",
        ),
        (
            ("--", "pretrain", "a", "--data", "s3://key:word@b/d", "--output", "s3://b/r"),
            "an address holds a password",
        ),
        (
            ("--", "pretrain", "a", "--data", "d", "--output", "runs/a"),
            "--output runs/a: a relative path lies in the",
        ),
        (
            ("--", "pretrain", "a", "--data", "d", "--output=a"),
            "--output a: a relative path lies in the job's working",
        ),
    ],
)
def test_mistakes_are_one_line(
    words: tuple[str, ...], message: str, sent: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "key:word" not in error
    assert error.count("\n") == 1
    assert "entrypoint" not in sent


@pytest.mark.parametrize(
    ("words", "cpus"),
    [
        (("pretrain", "canine-s-tiny", *STORES), 1),
        (("pretrain", "canine-s-tiny", *STORES, "--workers", "2:3"), 0),
        (("finetune", "ner", *STORES, "--workers=2"), 0),
        (("sweep", "three-knobs-tiny", *STORES), 0),
        (("preprocess", "--books", "s3://b/x", "--output", "s3://b/d", "--workers", "4"), 1),
        (("preprocess", "--books", "s3://b/x", "--output", "s3://b/d", "--runner", "flink"), 0),
        (("evaluate", "s3://b/run", "--data", "s3://b/d"), 1),
    ],
)
def test_what_computes_by_itself_gets_a_cpu(words: tuple[str, ...], cpus: int) -> None:
    assert entrypoint_cpus(words) == cpus
