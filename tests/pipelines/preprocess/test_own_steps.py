"""Filters, readers and cleaners of the user: the page's example, engines, failures, and the job's identity."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.conftest import REPOSITORY
from tests.pipelines.conftest import shard_files, write_corpus
from tokenfree.core.errors import UserError
from tokenfree.core.own_code import UntrustedCode
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import FilterConfig, PreprocessConfig, ReaderConfig
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.workflows import cli

PAGE = (REPOSITORY / "docs" / "sources.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
OTHERS = """

from tokenfree.preprocess.config import Cleaner, Reader
from tokenfree.preprocess.records import Document


@settings
class Breaks(Filter):
    name: str = "my_steps.Breaks"
    every: int

    def reason(self, document):
        if int(document.id.rpartition("d")[2]) % self.every == 1:
            raise ValueError(f"a bug at {document.id}")
        return None


@settings
class Lines(Reader):
    name: str = "my_steps.Lines"
    suffix = ".lines"

    def documents(self, path):
        with open(path, errors="surrogateescape") as file:
            for number, line in enumerate(file):
                language, text = line.split(" ", 1)
                yield Document(str(number), language, f"Line {number}", text)


@settings
class Shout(Cleaner):
    name: str = "my_steps.Shout"

    def clean(self, wikitext, site, title):
        return f"{site.database} {title}: {wikitext.upper()}"
"""
LONG_WORDS = {"name": "my_steps.LongWords", "max_letters": 6}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with the page's module and more steps in it, which is forgotten afterwards."""
    (tmp_path / "my_steps.py").write_text(EXAMPLE + OTHERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    forget()


def forget() -> None:
    """Let the next command import the module again, as a new process would."""
    from tokenfree.preprocess import config

    sys.modules.pop("my_steps", None)
    config._built.cache_clear()


def filtered(make_config: Callable[..., PreprocessConfig], *books: Path, **settings: Any) -> PreprocessConfig:
    filters = FilterConfig(min_characters=100, also=(LONG_WORDS,))
    return make_config(*books, filters=filters, **settings)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for file in sorted(folder.glob("part-*")) for line in file.read_text().splitlines()
    ]


def test_every_engine_writes_the_same_bytes(
    folder: Path, corpus: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = filtered(make_config, corpus, keep_dropped=True, split_bytes=4000)
    manifest = run_preprocess(config, "one", trust_code=True)
    assert manifest.counters["filtered"]["long_words"] > 5
    assert manifest.counters["documents"] > 5
    expected = shard_files(folder / "one")
    forget()
    run_preprocess(config, "two", trust_code=True, workers=2)
    forget()
    run_preprocess(config, "beam", trust_code=True, runner="beam")
    assert shard_files(folder / "two") == expected
    assert shard_files(folder / "beam") == expected
    dropped = [
        (folder / name / "dropped" / "part-00000.jsonl").read_bytes() for name in ("one", "two", "beam")
    ]
    assert dropped[0] == dropped[1] == dropped[2]


def test_a_cluster_of_ray_writes_the_same_bytes(folder: Path, corpus: Path) -> None:
    import ray

    from tokenfree.train.ray.cluster import ray_session

    words = ["preprocess", "--books", str(corpus), "--trust-code", "--vocabulary.size", "320"]
    words += ["--vocabulary.required_characters", "none", "--vocabulary.character_coverage", "0.98"]
    words += ["--filters.also", json.dumps([LONG_WORDS])]
    assert cli.main([*words, "--output", "one"]) == 0
    with ray_session(2):
        environment = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
        command = [sys.executable, "-m", "tokenfree", *words, "--output", "ray", "--runner", "ray"]
        subprocess.run(command, env=environment, check=True, cwd=folder)
    assert shard_files(folder / "ray") == shard_files(folder / "one")


def test_dropped_documents_are_counted_and_kept(folder: Path, corpus: Path, make_config: Any) -> None:
    manifest = run_preprocess(filtered(make_config, corpus, keep_dropped=True), "out", trust_code=True)
    dropped = rows(folder / "out" / "dropped")
    reasons = [row["reason"] for row in dropped]
    assert {reason: reasons.count(reason) for reason in set(reasons)} == manifest.counters["filtered"]
    row = next(row for row in dropped if row["reason"] == "long_words")
    assert row.keys() == {"id", "reason", "source", "text", "page"}
    assert row["source"] == "books.jsonl"
    assert max(map(len, row["text"].split())) > 6
    assert "dropped/part-00000.jsonl" in manifest.files
    assert "are in `dropped/`." in (folder / "out" / "README.md").read_text()
    assert verify(folder / "out") == ()
    assert not (folder / "out" / "failures").exists()


def test_nothing_is_imported_without_trust(folder: Path, corpus: Path, make_config: Any) -> None:
    config = filtered(make_config, corpus)
    with pytest.raises(UntrustedCode, match=r"names code outside tokenfree, my_steps\.LongWords"):
        run_preprocess(config, "out")
    words = ["preprocess", "--books", str(corpus), "--filters.also", json.dumps([LONG_WORDS])]
    assert cli.main([*words, "--output", "out"]) == 2
    assert cli.main([*words, "--output", "out", "--dry-run"]) == 2
    assert "my_steps" not in sys.modules
    assert not (folder / "out").exists()
    assert cli.main([*words, "--output", "out", "--dry-run", "--trust-code"]) == 0
    run_preprocess(config, "out", trust_code=True)
    forget()
    assert cli.main(["verify", "out"]) == 0
    assert "my_steps" not in sys.modules


def test_the_code_is_part_of_the_job(folder: Path, corpus: Path, make_config: Any) -> None:
    config = filtered(make_config, corpus)
    manifest = run_preprocess(config, "out", trust_code=True)
    assert len(manifest.versions["my_steps.LongWords"]) == 64
    assert run_preprocess(config, "out", trust_code=True) == manifest
    with (folder / "my_steps.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(UserError, match=r"was made with my_steps\.LongWords"):
        run_preprocess(config, "out", trust_code=True)
    with pytest.raises(UserError, match=r"was made with filters\.also .*my_steps\.LongWords.*, not \[\]"):
        run_preprocess(make_config(corpus, filters=FilterConfig(min_characters=100)), "out")


def breaking(make_config: Any, corpus: Path, every: int) -> PreprocessConfig:
    filters = FilterConfig(also=({"name": "my_steps.Breaks", "every": every},))
    return make_config(corpus, filters=filters)


def test_an_exception_is_a_failure_of_its_page(folder: Path, make_config: Any) -> None:
    write_corpus(folder / "books.jsonl", 200)
    manifest = run_preprocess(breaking(make_config, folder / "books.jsonl", 199), "out", trust_code=True)
    assert manifest.counters["failed"] == {"my_steps.Breaks: ValueError": 1}
    (row,) = rows(folder / "out" / "failures")
    assert (row["id"], row["reason"]) == ("books:books.jsonl:d1", "my_steps.Breaks: ValueError")
    forget()
    assert cli.main(["replay", "out"]) == 2
    assert "my_steps" not in sys.modules
    assert cli.main(["replay", "out", "--trust-code"]) == 0


def test_many_exceptions_end_the_job_with_the_first(folder: Path, make_config: Any) -> None:
    books = folder / "books.jsonl"
    write_corpus(books, 200)
    config = breaking(make_config, books, 60)
    message = r"my_steps\.Breaks: ValueError: a bug at books:books\.jsonl:d1 \(page .*4 of 200 pages"
    with pytest.raises(UserError, match=message):
        run_preprocess(config, "out", trust_code=True, workers=2)
    # With fewer pages, all are failures.
    write_corpus(folder / "few.jsonl", 99)
    few = run_preprocess(breaking(make_config, folder / "few.jsonl", 10), "few", trust_code=True)
    assert few.counters["failed"] == {"my_steps.Breaks: ValueError": 10}
    # After a fix, the same command works in the same directory.
    text = (folder / "my_steps.py").read_text()
    (folder / "my_steps.py").write_text(text.replace("== 1:", "== -1:"))
    forget()
    assert run_preprocess(config, "out", trust_code=True).counters["failed"] == {}


def test_a_reader_reads_the_books_of_its_suffix(folder: Path, make_config: Any) -> None:
    books = folder / "sw"
    books.mkdir()
    sentences = b"Seven geese argue about bread. " * 9
    (books / "a.lines").write_bytes(b"de Goose \xff. " + sentences + b"\nx! Duck. " + sentences + b"\nbroken")
    (books / "b.txt").write_bytes(sentences)
    (books / "c.other").write_bytes(sentences)
    config = make_config(books, readers=ReaderConfig(also=({"name": "my_steps.Lines"},)), shards=1)
    for name, workers in (("one", 1), ("two", 2)):
        forget()
        manifest = run_preprocess(config, name, trust_code=True, workers=workers)
    assert shard_files(folder / "one") == shard_files(folder / "two")
    assert manifest.counters["failed"] == {"my_steps.Lines: ValueError": 1}
    windows = [row for split in ("train", "validation") for row in read_rows(folder / "one" / split)]
    documents = sorted((row["document"], row["language"], row["text"][:8]) for row in windows)
    assert documents == [
        ("books:a.lines:0", "de", "Goose \ufffd."),
        ("books:a.lines:1", "sw", "Duck. Se"),
        ("books:b.txt", "sw", "Seven ge"),
    ]
    assert {entry["path"] for entry in manifest.inputs} == {"a.lines", "b.txt"}


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of all shards of a split, if there are any."""
    files = sorted(folder.glob("*.arrow"))
    return [row for file in files for row in pa.ipc.open_stream(file.read_bytes()).read_all().to_pylist()]


def test_a_cleaner_takes_the_place_of_that_of_tokenfree(folder: Path, make_config: Any) -> None:
    page = (
        "<page><title>Goose</title><ns>0</ns><id>7</id><revision><id>8</id><model>wikitext</model>"
        f"<text>{{{{honk}}}} ''quietly''. {'It flies over the hills. ' * 9}</text></revision></page>"
    )
    dump = folder / "enwiki-pages.xml"
    dump.write_text(
        '<mediawiki version="0.11" xml:lang="en"><siteinfo><dbname>enwiki</dbname></siteinfo>'
        f"{page}</mediawiki>"
    )
    config = make_config(wikipedia=(str(dump),), cleaner={"name": "my_steps.Shout"}, columns=("text",))
    run_preprocess(config, "out", trust_code=True)
    (row,) = [row for split in ("train", "validation") for row in read_rows(folder / "out" / split)]
    assert row["text"].startswith("enwiki Goose: {{HONK}} ''QUIETLY''. IT FLIES")


def test_a_step_that_does_not_fit_is_reported(folder: Path, corpus: Path, make_config: Any) -> None:
    for also, message in (
        (
            {"name": "my_steps.Shout"},
            r"filters\.0: my_steps\.Shout is not a part for the slot documents\.filters",
        ),
        ({"name": "my_steps.LongWords", "max": 3}, r"filters\.0\.max: no such key"),
        ({"name": "langage"}, r"there is no documents\.filters 'langage' \(did you mean 'language'\?\)"),
    ):
        with pytest.raises(UserError, match=message):
            run_preprocess(make_config(corpus, filters=FilterConfig(also=(also,))), "out", trust_code=True)
    with pytest.raises(UserError, match=r"readers\.0: there is no sources 'lines' \(give MODULE\.CLASS\)"):
        run_preprocess(make_config(corpus, readers=ReaderConfig(also=({"name": "lines"},))), "out")
