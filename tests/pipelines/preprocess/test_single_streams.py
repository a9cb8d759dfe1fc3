"""Dumps and lines in one stream, which cannot be cut before they are read: cut into runs meanwhile, memory is flat."""

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tokenfree.core.errors import JobError
from tokenfree.core.storage import Storage
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.progress import Watcher
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.job import read as read_step
from tokenfree.preprocess.job.inputs import identity
from tokenfree.preprocess.job.job import RUNS, PreprocessJob
from tokenfree.preprocess.job.output import begin
from tokenfree.preprocess.job.read import all_runs, read_one_split
from tokenfree.preprocess.shards.sorted_runs import SortedRun
from tokenfree.preprocess.sources.splits import find_inputs, plan_splits

HEAD = '<mediawiki version="0.11" xml:lang="en"><siteinfo><dbname>enwiki</dbname></siteinfo>\n'
SPLIT_BYTES = 4_000  # some five pages


def page(number: int, text: str) -> str:
    return (
        f"<page><title>Goose {number}</title><ns>0</ns><id>{number}</id><revision><id>{number + 100}</id>"
        f"<model>wikitext</model><text>{text}</text></revision></page>\n"
    )


def dump_of(num_pages: int) -> bytes:
    """Some pages that fail, redirects, and a text that comes twice are among them."""
    pages = [
        "<page><title>Broken</title><id>7</id></page>\n"
        if number % 7 == 3
        else page(
            number, f"#REDIRECT [[Goose {number}]]" if number % 5 == 1 else f"Goose {number % 40} eats. " * 15
        )
        for number in range(num_pages)
    ]
    return (HEAD + "".join(pages) + "</mediawiki>\n").encode()


def zst(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "xml.bz2": bz2.compress,
    "xml.xz": lzma.compress,
    "xml.zst": zst,
    "utf16.xml": lambda data: data.decode().encode("utf-16"),
}


@pytest.fixture
def make_dump_config(make_config: Any) -> Callable[..., PreprocessConfig]:
    vocabulary = VocabularyConfig(size=300, required_characters="none", character_coverage=0.98)
    # These tests call the step that reads, without the one that collects templates.
    return lambda dump, **settings: make_config(
        wikipedia=(str(dump),), vocabulary=vocabulary, expand_templates=False, **settings
    )


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """60 pages in one stream of gz."""
    path = tmp_path / "enwiki-pages.xml.gz"
    path.write_bytes(gzip.compress(dump_of(60)))
    return path


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[SortedRun]:
    """The runs that are committed from now on."""
    made: list[SortedRun] = []
    commit = read_step.commit_run
    monkeypatch.setattr(read_step, "commit_run", lambda *given: made.append(given[-1]) or commit(*given))
    return made


def start_job(config: PreprocessConfig, output: Path) -> PreprocessJob:
    inputs = find_inputs(config)
    splits = plan_splits(config, inputs)
    return begin(Storage.at(str(output)), identity(config, inputs), config, inputs, splits)


def test_a_cut_stream_gives_the_same_shards(
    dump: Path, tmp_path: Path, make_dump_config: Any, read_shards: Any, commits: list[SortedRun]
) -> None:
    whole = run_preprocess(make_dump_config(dump), str(tmp_path / "whole"))
    assert len(commits) == 1
    commits.clear()
    cut = run_preprocess(make_dump_config(dump, split_bytes=SPLIT_BYTES), str(tmp_path / "cut"))
    assert len(commits) > 5
    assert [run.last for run in commits] == [False] * (len(commits) - 1) + [True]
    assert all(run.input_bytes < SPLIT_BYTES + 1000 for run in commits)
    assert cut.counters == whole.counters
    assert whole.counters["failed"] == {"missing_ns": 9}
    assert read_shards(tmp_path / "cut") == read_shards(tmp_path / "whole")


def test_compressed_lines_give_the_same_shards_cut_and_killed(
    corpus: Path,
    tmp_path: Path,
    make_config: Any,
    read_shards: Any,
    commits: list[SortedRun],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that ends too early, too: what is lost is one line, and told."""
    packed = tmp_path / "books.jsonl.gz"
    packed.write_bytes(gzip.compress(corpus.read_bytes(), mtime=0)[:-500])
    whole = run_preprocess(make_config(packed), str(tmp_path / "whole"))
    assert whole.counters["failed"] == {"truncated": 1}
    assert len(commits) == 1
    config = make_config(packed, split_bytes=SPLIT_BYTES)
    with monkeypatch.context() as patched:
        commit, made = read_step.commit_run, list[int]()
        patched.setattr(
            read_step, "commit_run", lambda *run: made.append(1) or (commit(*run) if len(made) < 4 else 1 / 0)
        )
        with pytest.raises(JobError):
            run_preprocess(config, str(tmp_path / "cut"))
    run_preprocess(config, str(tmp_path / "cut"))
    assert len(commits) > 10
    assert read_shards(tmp_path / "cut") == read_shards(tmp_path / "whole")


def characters_of(run: SortedRun) -> int:
    return sum(part.characters for part in run.file.parts)


@pytest.mark.parametrize("name", STREAMS)
def test_each_format_is_cut_into_the_same_runs(
    name: str, dump: Path, tmp_path: Path, make_dump_config: Any, commits: list[SortedRun]
) -> None:
    other = tmp_path / f"enwiki-pages.{name}"
    other.write_bytes(STREAMS[name](dump_of(60)))
    for path in (dump, other):
        config = make_dump_config(path, split_bytes=SPLIT_BYTES)
        assert len(plan_splits(config)) == 1
        read_one_split(start_job(config, tmp_path / f"{path.name}-runs"), 0)
    found = [(run.first_page, run.last, run.input_bytes, run.counters, characters_of(run)) for run in commits]
    assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert len(found) > 10


def test_who_is_killed_cleans_no_page_of_a_committed_run_again(
    dump: Path,
    tmp_path: Path,
    make_dump_config: Any,
    read_shards: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = make_dump_config(dump, split_bytes=SPLIT_BYTES)
    run_preprocess(config, str(tmp_path / "undisturbed"))
    commit, output = read_step.commit_run, tmp_path / "out"
    made: list[SortedRun] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            read_step,
            "commit_run",
            lambda *given: (made.append(given[-1]) or commit(*given)) if len(made) < 4 else 1 / 0,
        )
        with pytest.raises(JobError):
            run_preprocess(config, str(output))
    assert not any(run.last for run in made)
    before = {path: path.stat().st_ino for path in (output / RUNS).glob("*.json")}
    assert len(before) == 4

    cleaned: list[Any] = []
    extract = read_step.extract

    def counting(pages: Any, *rest: Any) -> Any:
        return extract((cleaned.append(page) or page for page in pages), *rest)

    monkeypatch.setattr(read_step, "extract", counting)
    manifest = run_preprocess(config, str(output))
    assert len(cleaned) == manifest.counters["pages"] - sum(run.counters["pages"] for run in made)
    assert read_shards(output) == read_shards(tmp_path / "undisturbed")
    assert (output / "manifest.json").read_bytes() == (
        tmp_path / "undisturbed" / "manifest.json"
    ).read_bytes()


def test_runs_that_follow_no_other_are_not_used(
    dump: Path, tmp_path: Path, make_dump_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was lost is made again in another size, and its maker is killed; those behind it begin elsewhere."""
    job = start_job(make_dump_config(dump, split_bytes=SPLIT_BYTES), tmp_path / "out")
    read_one_split(job, 0)
    whole = all_runs(job)
    (tmp_path / "out" / RUNS / f"{whole[2].name}.arrow").unlink()
    with pytest.raises(JobError, match=r"/_work/runs/\w+-\d{5}: gone"):
        all_runs(job)
    again = start_job(make_dump_config(dump, split_bytes=2 * SPLIT_BYTES), tmp_path / "out")
    commit = read_step.commit_run
    with monkeypatch.context() as patched:
        patched.setattr(read_step, "commit_run", lambda *given: commit(*given) or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            read_one_split(again, 0)
    read_one_split(again, 0)
    runs = all_runs(again)
    assert runs[:2] == whole[:2]
    assert len(runs) < len(whole)
    assert [run.first_page for run in runs] == [
        sum(r.counters["pages"] for r in runs[:n]) for n in range(len(runs))
    ]
    assert sum(run.counters["pages"] for run in runs) == 60


def test_progress_counts_what_is_committed_of_a_split(
    dump: Path, tmp_path: Path, make_dump_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start_job(make_dump_config(dump, split_bytes=SPLIT_BYTES), tmp_path / "out")
    watcher = Watcher(job, lambda _: None)
    looks = [watcher.look()]
    commit = read_step.commit_run
    monkeypatch.setattr(
        read_step, "commit_run", lambda *given: commit(*given) or looks.append(watcher.look())
    )
    read_one_split(job, 0)
    assert [(look.stage, look.done, look.total) for look in looks[:-1]] == [("read", 0, 1)] * (len(looks) - 1)
    assert (looks[-1].stage, looks[-1].done) == ("vocabulary", 1)
    sizes = [look.bytes for look in looks]
    assert sizes == sorted(set(sizes))
    assert looks[-1].characters == sum(map(characters_of, all_runs(job)))


def peak_of_reading(dump: Path, output: Path, config: PreprocessConfig) -> int:
    """Bytes that Python holds at most while the only split is read."""
    job = start_job(config, output)
    tracemalloc.start()
    try:
        read_one_split(job, 0)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def many_articles(number: int) -> bytes:
    return b"".join(page(n, f"Goose {n} eats quiet bread. " * 80).encode() for n in range(number))


@pytest.mark.parametrize(
    "content",
    [many_articles, lambda number: page(1, "Goose " * 40).encode() + b"<page>" * 15 * number],
    ids=["articles", "tags of pages that never end"],
)
def test_memory_does_not_grow_with_a_stream(
    content: Callable[[int], bytes], tmp_path: Path, make_dump_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenfree.preprocess.sources.compression.READ_BYTES", 1 << 10)
    monkeypatch.setattr("tokenfree.preprocess.sources.compression.PIECE_BYTES", 1 << 14)
    peaks = []
    # The first fills caches.
    for number in (400, 50, 400):
        dump = tmp_path / f"enwiki-{number}.xml.gz"
        dump.write_bytes(gzip.compress(HEAD.encode() + content(number), 1))
        peaks.append(
            peak_of_reading(dump, tmp_path / str(len(peaks)), make_dump_config(dump, split_bytes=30_000))
        )
    assert peaks[2] < 1.5 * peaks[1]


def test_a_run_holds_many_failures_at_most(
    tmp_path: Path, make_dump_config: Any, commits: list[SortedRun], read_shards: Any
) -> None:
    dump = tmp_path / "enwiki-pages.xml.gz"
    dump.write_bytes(gzip.compress(HEAD.encode() + page(1, "Goose " * 40).encode() + b"<page>" * 1000))
    manifest = run_preprocess(make_dump_config(dump, split_bytes=50_000), str(tmp_path / "out"))
    assert manifest.counters["failed"] == {"truncated": 1000}
    assert [run.failures for run in commits] == [98, *[99] * 9, 11]
