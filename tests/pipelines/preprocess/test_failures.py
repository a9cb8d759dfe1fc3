"""Failed pages are kept, in an order that splits do not change, and can be tried again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import VocabularyConfig
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.documents import extract as extract_module
from tokenfree.preprocess.documents import failures as failures_module
from tokenfree.preprocess.job.finish import replay
from tokenfree.preprocess.records import Site
from tokenfree.workflows.cli import main

HEAD = '<mediawiki version="0.11" xml:lang="en"><siteinfo><dbname>enwiki</dbname></siteinfo>\n'


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Thirty pages, of which a bug of the cleaner fails every third, and one that is broken XML."""
    pages = [
        f"<page><title>Goose {n}</title><ns>0</ns><id>{n}</id><revision><id>{n + 100}</id><model>wikitext</model>"
        f"<text>{'bad' if n % 3 == 0 else 'good'} goose number {n}. {'It flies over the hills. ' * 9}</text>"
        "</revision></page>\n"
        for n in range(1, 31)
    ]
    pages[10] = "<page><title>Goose 11</title><ns>0</ns><id>11</id><revision></page>\n"
    path = tmp_path / "enwiki-pages.xml"
    path.write_text(HEAD + "".join(pages) + "</mediawiki>\n")
    return path


def buggy_clean(text: str, site: Site) -> str:
    if "bad goose" in text:
        raise LookupError("a bug")
    return text


def test_failures_are_kept_and_replayed(
    dump: Path,
    tmp_path: Path,
    make_config: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "out"
    vocabulary = VocabularyConfig(size=300, required_characters="none", algorithm="bpe")
    config = make_config(wikipedia=(str(dump),), vocabulary=vocabulary)
    with monkeypatch.context() as patched:
        patched.setattr(extract_module, "clean_page", buggy_clean)
        manifest = run_preprocess(config, str(output))
        patched.setattr(failures_module, "PART_BYTES", 1000)
        patched.setattr(failures_module, "OPEN_FILES", 2)
        cut = make_config(wikipedia=(str(dump),), vocabulary=vocabulary, split_bytes=1000)
        run_preprocess(cut, str(tmp_path / "cut"))
    counters = manifest.counters
    assert counters["pages"] == 30
    assert counters["failed"]["error: LookupError"] == 10
    assert sum(counters["failed"].values()) == 11
    rows = [json.loads(line) for line in (output / "failures" / "part-00000.jsonl").read_text().splitlines()]
    assert len(rows) == 11
    assert {row["source"] for row in rows} == {"enwiki-pages.xml"}
    good = next(row for row in rows if row["id"] == "enwiki:3:103")
    assert good["reason"] == "error: LookupError"
    assert good["text"].startswith("bad goose number 3.")
    parts = sorted((tmp_path / "cut" / "failures").glob("part-*"))
    assert len(parts) > 2
    assert (
        b"".join(part.read_bytes() for part in parts)
        == (output / "failures" / "part-00000.jsonl").read_bytes()
    )

    result = replay(str(output))
    assert (result.tried, result.documents, sum(result.still_failing.values())) == (11, 10, 1)
    assert main(["replay", str(output)]) == 0
    said = capsys.readouterr().out
    assert "11 failed pages tried again: 10 succeed now, 1 do not" in said
    assert "still       1 missing_text" in said
    assert f"tokenfree preprocess --books {result.path} --output" in said
    more = run_preprocess(make_config(result.path, vocabulary=vocabulary), str(tmp_path / "more"))
    assert more.counters["documents"] == 10
    assert load_manifest(str(output)) == manifest  # what is finished never changes


def test_a_replay_with_nothing_to_do(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    result = replay(str(copy))
    assert (result.tried, result.documents, result.path) == (0, 0, "")
    assert main(["replay", str(copy)]) == 0
    assert "no page of this job failed" in capsys.readouterr().out
    assert {path.name for path in copy.iterdir()} == {path.name for path in made.iterdir()}
    with pytest.raises(UserError, match=r"no manifest\.json"):
        replay(str(tmp_path))
