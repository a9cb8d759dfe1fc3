"""A job expands the templates of its wikis: from all their dumps, with the same bytes however it runs."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

import tokenfree
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings_values import to_mapping
from tokenfree.core.storage import Storage
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.preprocess.documents import extract
from tokenfree.preprocess.job import stages, templates
from tokenfree.preprocess.job.finish import replay
from tokenfree.preprocess.job.templates import StoredTemplates, write_rows
from tokenfree.preprocess.wikitext.templates import PageExpansion
from tokenfree.train.ray.cluster import ray_session

HEAD = """<mediawiki version="0.11" xml:lang="xx"><siteinfo><dbname>xxwiki</dbname><namespaces>
<namespace key="0" /><namespace key="10">Speco</namespace></namespaces></siteinfo>
"""


def page(number: int, title: str, text: str, namespace: int = 0, revision: int = 1) -> str:
    return (
        f"<page><title>{title}</title><ns>{namespace}</ns><id>{number}</id><revision><id>{revision}</id>"
        f"<model>wikitext</model><text>{text}</text></revision></page>\n"
    )


def write_dump(path: Path, *pages: str) -> Path:
    path.write_text(HEAD + "".join(pages) + "</mediawiki>", encoding="utf-8")
    return path


ARTICLES = [
    page(
        n, f"Goose {n}", f"The goose {n} weighs {{{{weight|{n}}}}} and lives at {{{{Pond}}}} number {n}. " * 3
    )
    for n in range(1, 40)
]
TEMPLATES = [
    page(100, "Speco:Weight", "{{{1}}} stones", 10),
    page(101, "Speco:Pond", "#REDIRECT [[Speco:Water]]", 10),
    page(102, "Speco:Water", "an old pond", 10, revision=5),
]


@pytest.fixture
def dumps(tmp_path: Path) -> tuple[Path, Path]:
    """A dump of articles and one of templates, of the same wiki."""
    first = write_dump(tmp_path / "xxwiki-20261101-pages-articles1.xml", *ARTICLES)
    return first, write_dump(tmp_path / "xxwiki-20261101-pages-articles2.xml", *TEMPLATES)


def texts(output: Path) -> list[str]:
    shards = sorted(output.rglob("*.arrow"))
    return [text for shard in shards for text in pa.ipc.open_stream(shard).read_all()["text"].to_pylist()]


def settings(make_config: Any, dumps: tuple[Path, ...], **more: Any) -> Any:
    return make_config(wikipedia=tuple(map(str, dumps)), split_bytes=4000, **more)


def test_templates_of_another_dump_of_the_wiki_are_expanded(dumps, make_config, tmp_path):
    manifest = run_preprocess(settings(make_config, dumps), tmp_path / "out")
    assert all("stones and lives at an old pond number" in text for text in texts(tmp_path / "out"))
    assert manifest.counters["templates"] == {"definition": 39 * 2 * 3}
    assert manifest.counters["dropped_templates"] == {}


def test_templates_from_reads_a_dump_for_its_templates_only(dumps, make_config, tmp_path):
    more = write_dump(
        tmp_path / "xxwiki-20261101-pages-articles3.xml", *TEMPLATES, page(200, "Duck", "A duck.")
    )
    config = settings(make_config, dumps[:1], templates_from=(str(more),))
    manifest = run_preprocess(config, tmp_path / "out")
    assert manifest.counters["pages"] == 39
    assert [entry["path"] for entry in manifest.inputs] == [dumps[0].name, more.name]
    assert all("stones and lives at an old pond" in text for text in texts(tmp_path / "out"))
    write_dump(more, *TEMPLATES[:2])
    with pytest.raises(UserError, match=r"articles3\.xml"):
        run_preprocess(config, tmp_path / "out")


@pytest.mark.parametrize("options", [{"workers": 2}, {"runner": "beam"}])
def test_bytes_do_not_depend_on_workers_or_runner(options, dumps, make_config, read_shards, tmp_path):
    config = settings(make_config, dumps)
    run_preprocess(config, tmp_path / "one")
    run_preprocess(settings(make_config, dumps[::-1]), tmp_path / "other", **options)
    assert read_shards(tmp_path / "one") == read_shards(tmp_path / "other")
    assert load_manifest(tmp_path / "one").counters == load_manifest(tmp_path / "other").counters


@pytest.mark.parametrize("stage", [0, 1])
def test_a_job_that_failed_in_this_stage_resumes(
    stage, dumps, make_config, read_shards, tmp_path, monkeypatch
):
    config, table = settings(make_config, dumps), stages.STAGES
    run_preprocess(config, tmp_path / "whole")
    calls: list[int] = []

    def failing(job: Any, index: int) -> object:
        calls.append(index)
        return table[stage].function(job, index) if stage == 0 and len(calls) < 3 else 1 / 0

    with monkeypatch.context() as patched:
        broken = [*table[:stage], table[stage]._replace(function=failing), *table[stage + 1 :]]
        patched.setattr("tokenfree.pipelines.local.STAGES", broken)
        with pytest.raises(JobError, match="division by zero"):
            run_preprocess(config, tmp_path / "out")
    for part in (tmp_path / "out").glob("_work/templates/*.arrow"):
        part.write_bytes(part.read_bytes().replace(b"stones", b"pounds"))
    run_preprocess(config, tmp_path / "out")
    assert read_shards(tmp_path / "out") == read_shards(tmp_path / "whole")


# A job that is killed while it writes its fourth file of templates of a part, or the file of a wiki.
KILLED = """
import json, os, signal, sys
from tokenfree.core.settings import build
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.job import templates

config, output, moment = sys.argv[1:]
write, names = templates.write_rows, []

def write_or_die(storage, name, rows):
    names.append(name)
    dies = len(names) == 4 if moment == "part" else "-0" not in name
    return write(storage, name, first_and_die(rows) if dies else rows)

def first_and_die(rows):
    yield next(iter(rows))
    os.kill(os.getpid(), signal.SIGKILL)

templates.write_rows = write_or_die
run_preprocess(build(PreprocessConfig, json.loads(config), source="test"), output)
"""


@pytest.mark.parametrize("moment", ["part", "store"])
def test_a_job_killed_in_this_stage_resumes(moment, dumps, make_config, read_shards, tmp_path, monkeypatch):
    others = [page(200 + n, f"Speco:Bird {n}", "a bird " * 200, 10) for n in range(20)]
    more = write_dump(tmp_path / "xxwiki-20261101-pages-articles3.xml", *others)
    config, output = settings(make_config, (*dumps, more)), tmp_path / "out"
    run_preprocess(config, tmp_path / "whole")
    command = [sys.executable, "-c", KILLED, json.dumps(to_mapping(config)), str(output), moment]
    environment = {**os.environ, "PYTHONPATH": str(Path(tokenfree.__file__).parents[1])}
    killed = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list((output / "_work" / "templates").glob("*.json"))  # what is committed is not read again
    inputs: list[str] = []
    read = templates.read_templates
    monkeypatch.setattr(
        templates, "read_templates", lambda split: inputs.append(split.to_json()) or read(split)
    )
    run_preprocess(config, output)
    assert (moment == "store") == (inputs == [])
    assert read_shards(output) == read_shards(tmp_path / "whole")
    assert (output / "manifest.json").read_bytes() == (tmp_path / "whole" / "manifest.json").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"workers": 2}, {"runner": "ray"}])
def test_templates_of_a_store_are_copied_once_to_a_machine(
    options, dumps, make_config, read_shards, bucket, tmp_path
):
    # The copy is named by its hash: this text makes it one of this test.
    write_dump(dumps[1], *TEMPLATES, page(300, "Speco:Unique", f"{tmp_path} {options}", 10))
    config = settings(make_config, dumps, shard_characters=100_000)
    run_preprocess(config, tmp_path / "here")
    copies = Path(tempfile.gettempdir())
    previous = set(copies.glob("tokenfree-templates-*"))
    with ray_session(2) if "runner" in options else contextlib.nullcontext():
        run_preprocess(config, f"{bucket}/out", **options)
    fsspec.filesystem("s3").get(f"{bucket}/out", str(tmp_path / "out"), recursive=True)
    assert read_shards(tmp_path / "out") == read_shards(tmp_path / "here")
    (copy,) = set(copies.glob("tokenfree-templates-*")) - previous
    names = [path.name for path in copy.iterdir()]
    shutil.rmtree(copy)
    assert len(names) == 1


def test_replay_cleans_by_the_definitions_of_the_job(dumps, make_config, read_shards, tmp_path, monkeypatch):
    config, clean = settings(make_config, dumps), extract.clean_page

    def buggy_clean(text: str, expansion: PageExpansion) -> str:
        assert expansion.title != "Goose 7", "a bug"
        return clean(text, expansion)

    with monkeypatch.context() as patched:
        patched.setattr(extract, "clean_page", buggy_clean)
        run_preprocess(config, tmp_path / "out")
        run_preprocess(settings(make_config, dumps[::-1]), tmp_path / "cut")
    assert read_shards(tmp_path / "out") == read_shards(tmp_path / "cut")
    result = replay(str(tmp_path / "out"))
    assert (result.tried, result.documents) == (1, 1)
    document = json.loads(Path(result.path).read_text())
    assert document["text"].startswith("The goose 7 weighs 7 stones and lives at an old pond number 7.")
    verify(str(tmp_path / "out"))


def test_expansion_is_turned_off_and_old_directories_are_recognised(dumps, make_config, tmp_path):
    config = settings(make_config, dumps, expand_templates=False)
    run_preprocess(config, tmp_path / "out")
    assert not any("pond number" in text for text in texts(tmp_path / "out"))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    # A version without templates wrote no such keys.
    del manifest["config"]["expand_templates"], manifest["config"]["templates_from"]
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "out" / "_SUCCESS").write_text("")
    stages_seen: list[str] = []
    run_preprocess(
        settings(make_config, dumps), tmp_path / "out", progress=lambda line: stages_seen.append(line.stage)
    )
    assert stages_seen == ["complete"]


def test_the_newest_revision_of_a_template_counts(dumps, make_config, tmp_path):
    old = write_dump(
        tmp_path / "xxwiki-20261001-pages-articles.xml",
        page(102, "Speco:Water", "a young pond", 10, revision=4),
    )
    run_preprocess(settings(make_config, dumps, templates_from=(str(old),)), tmp_path / "out")
    assert all("an old pond" in text for text in texts(tmp_path / "out"))


def test_stored_templates_finds_each_key(tmp_path):
    rows = [(f"10:T{number:05}", 0, f"text {number}") for number in range(3000)]
    _, first_keys = write_rows(Storage.at(tmp_path), "store.arrow", rows)
    store = StoredTemplates(str(tmp_path / "store.arrow"), first_keys)
    assert [store[key] for key, _, _ in rows[::97]] == [text for _, _, text in rows[::97]]
    assert not any(key in store for key in ("10:A", "10:T00001x", "10:Z", "0:T00001"))
    assert (len(store), next(iter(store))) == (3000, "10:T00000")
