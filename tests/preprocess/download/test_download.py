"""Dumps of wikis from a mirror, by the command that people give."""

import hashlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tokenfree.preprocess import download as fetch
from tokenfree.preprocess import download as mirrors
from tokenfree.preprocess.download import database
from tokenfree.workflows import cli

DOWNLOAD = ("download", "--allow-http")  # the mirror of the tests is on this machine
DUMP = b"<mediawiki>" * 9000
MULTISTREAM = {
    "pages-meta-history.xml.7z": b"far too much",
    "pages-articles.xml.bz2": b"slow",
    "pages-articles-multistream.xml.bz2": DUMP,
    "pages-articles-multistream-index.txt.bz2": b"not needed",
}
PARTS = {
    "pages-articles-multistream1.xml-p1p41.bz2": b"one",
    "pages-articles-multistream2.xml-p42p99.bz2": b"two",
    "pages-articles-multistream2.xml-p100p180.bz2": b"more of two",
}
SW = "swwiki-20260301-pages-articles-multistream.xml.bz2"


@pytest.fixture
def mirror(dump_server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A server with the dumps of one wiki, which is the default mirror; nobody waits and the folder is new."""
    dump_server.publish("swwiki", "20260301", MULTISTREAM)
    monkeypatch.setenv("TOKENFREE_MIRROR", dump_server.url + "/")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.chdir(tmp_path)
    return dump_server


def here() -> list[str]:
    """What the folder `dumps` has."""
    return sorted(path.name for path in Path("dumps").iterdir()) if Path("dumps").exists() else []


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The line that a command ends with that a mistake of the user's stopped."""
    assert cli.main([*DOWNLOAD, *argv]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error.splitlines()[-1]


def test_download_and_again(mirror: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*DOWNLOAD, "sw", "swwiki", "--output", "dumps"]) == 0
    shown = capsys.readouterr().out
    assert f"tokenfree preprocess wikipedia-tiny --wikipedia dumps/{SW} --output data/swwiki" in shown
    assert "1 of 1 files downloaded" in shown
    assert here() == [SW]
    assert Path("dumps", SW).read_bytes() == DUMP
    assert all(agent.startswith("tokenfree/") for agent in mirror.agents)
    # The server logs a request after the client has its answer.
    while not mirror.gets(f"/swwiki/20260301/{SW}"):
        time.sleep(0.01)
    mirror.log.clear()
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("already here, SHA-1 checked") == 1
    assert "0 of 1 files downloaded" in shown
    assert not [path for _, path, _, _ in mirror.log if path.endswith(".bz2")]


def test_a_damaged_file_is_replaced(mirror: Any) -> None:
    Path("dumps").mkdir()
    Path("dumps", SW).write_bytes(b"damaged")
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps"]) == 0
    assert Path("dumps", SW).read_bytes() == DUMP


def test_going_on_after_a_failure(mirror: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"/swwiki/20260301/{SW}"
    mirror.fault(path, mirror.cut(fetch.BLOCK), *[mirror.refuse(503)] * (fetch.ATTEMPTS - 1))
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps"]) == 1
    assert "503" in capsys.readouterr().err
    assert here() == [SW + ".part"]
    mirror.log.clear()
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps"]) == 0
    assert mirror.gets(path) == [(206, len(DUMP) - fetch.BLOCK)]


def test_wrong_bytes(mirror: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.files[f"/swwiki/20260301/{SW}"] = DUMP[::-1]
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps"]) == 1
    assert f"{SW}: its SHA-1 is not {hashlib.sha1(DUMP).hexdigest()}" in capsys.readouterr().err
    assert here() == []


def test_dry_run_writes_nothing(mirror: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert SW in shown
    assert "0.1 MB" in shown
    assert not Path("dumps").exists()


def test_parts(mirror: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.publish("enwiki", "20260301", {**PARTS, "pages-articles.xml.bz2": b"slow"})
    assert cli.main([*DOWNLOAD, "en", "sw", "--output", "my dumps"]) == 0
    names = {path.name for path in Path("my dumps").iterdir()}
    assert names == {f"enwiki-20260301-{name}" for name in PARTS} | {SW}
    pattern = "'my dumps'/enwiki-20260301-pages-articles-multistream[0-9]*.xml*.bz2"
    assert f"--wikipedia {pattern} 'my dumps'/{SW} --output data/wikipedia" in capsys.readouterr().out
    assert sum(1 for _ in Path("my dumps").glob(pattern.rpartition("/")[2])) == 3


def test_without_multistream(mirror: Any) -> None:
    mirror.publish("aawiki", "20260301", {"pages-articles.xml.bz2": b"slow"})
    assert cli.main([*DOWNLOAD, "aa", "--output", "dumps"]) == 0
    assert here() == ["aawiki-20260301-pages-articles.xml.bz2"]


@pytest.mark.parametrize("unfinished", ["none", "single", "parts", "gap"])
def test_a_dump_that_is_being_written_is_passed_over(mirror: Any, unfinished: str) -> None:
    newer = {
        "none": {"stub-articles.xml.gz": b"stub"},
        "single": {"pages-articles.xml.bz2": b"slow"},
        "parts": PARTS,
        "gap": {name: data for name, data in PARTS.items() if "stream1" not in name},
    }[unfinished]
    mirror.publish("swwiki", "20260320", newer)
    if unfinished == "parts":
        status = {"jobs": {"articlesmultistreamdump": {"status": "in-progress"}}}
        mirror.files["/swwiki/20260320/dumpstatus.json"] = json.dumps(status).encode()
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps"]) == 0
    assert here() == [SW]


def test_a_mirror_without_latest(mirror: Any) -> None:
    mirror.publish("dewiki", "20260201", MULTISTREAM, latest=False)
    mirror.publish("dewiki", "20260220", MULTISTREAM, latest=False)
    assert cli.main([*DOWNLOAD, "de", "--output", "dumps"]) == 0
    assert all(name.startswith("dewiki-20260220-") for name in here())


def test_a_listing_of_endless_dates_is_not_followed(
    mirror: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "MAX_DATES", 7)
    mirror.files["/aawiki/"] = "".join(f'<a href="{date}/">' for date in range(20000000, 20000400)).encode()
    assert "lists no complete articles dump" in refused(["aa", "--output", "dumps"], capsys)
    asked = [path for _, path, _, _ in mirror.log if "sha1sums" in path and "latest" not in path]
    assert [path.split("/")[2] for path in asked] == [str(date) for date in range(20000399, 20000392, -1)]


def test_a_date(mirror: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.publish("swwiki", "20260320", MULTISTREAM)
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps", "--date", "20260301"]) == 0
    assert here() == [SW]
    error = refused(["sw", "--output", "dumps", "--date", "20250101"], capsys)
    assert "--date 20250101" in error
    assert "20260320, 20260301" in error
    assert "--date yesterday" in refused(["sw", "--output", "dumps", "--date", "yesterday"], capsys)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["swahili"], "swahiliwiki: http"),
        (["swahili", "--date", "20260301"], "swahiliwiki: http"),
        (["../sw"], "../sw: no name of a wiki"),
        (["sw", "--mirror", "ftp://mirror"], "--mirror ftp://mirror: not an http"),
        (["sw", "--mirror", "http://mirror:port"], "not an http"),
        (["sw", "--output", "s3://bucket"], "a folder of this machine"),
    ],
)
def test_mistakes(mirror: Any, argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(["--output", "dumps", *argv], capsys)
    assert not Path("dumps").exists()


def test_a_list_without_articles(mirror: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.publish("aawiki", "20260301", {"stub-articles.xml.gz": b"stub"})
    assert "no complete articles dump" in refused(["aa", "--output", "dumps"], capsys)


def test_a_file_that_the_mirror_lacks(mirror: Any, capsys: pytest.CaptureFixture[str]) -> None:
    del mirror.files[f"/swwiki/20260301/{SW}"]
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps"]) == 1
    assert f"{SW}: 404" in capsys.readouterr().err


def test_a_file_of_unknown_size_is_refused(mirror: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.lengths = "untold"
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps"]) == 1
    assert "does not report the size" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "wiki"),
    [
        ("sw", "swwiki"),
        ("simple", "simplewiki"),
        ("SIMPLEWIKI", "simplewiki"),
        ("zh-min-nan", "zh_min_nanwiki"),
        ("yue", "zh_yuewiki"),
        ("en", "enwiki"),
        ("nb", "nowiki"),
        ("be-tarask", "be_x_oldwiki"),
        ("enwiktionary", "enwiktionary"),
    ],
)
def test_names_of_wikis(name: str, wiki: str) -> None:
    assert database(name) == wiki


def test_a_mirror_without_encryption_is_asked_for(mirror: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["download", "sw", "--output", "dumps"]) == 2
    assert "https:// address, or --allow-http" in capsys.readouterr().err
    assert mirror.log == []


def test_an_output_that_is_a_file_is_refused_without_a_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dumps").touch()
    mirror = ["--mirror", "http://127.0.0.1:9", "--allow-http"]
    assert cli.main(["download", "sw", "--output", str(tmp_path / "dumps"), *mirror]) == 2
    assert "dumps: downloads need a folder of this machine" in capsys.readouterr().err


@pytest.mark.parametrize(("is_silent", "reason"), [(False, "no network"), (True, "no answer within 0.2 s")])
def test_download_without_a_network_ends_soon(
    is_silent: bool,
    reason: str,
    mirror: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def look_up(*arguments: Any) -> Any:
        if is_silent:
            done.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "no network")

    done = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", look_up)
    assert fetch.ANSWER_SECONDS <= 10
    if is_silent:
        monkeypatch.setattr(fetch, "ANSWER_SECONDS", 0.2)
    assert cli.main([*DOWNLOAD, "sw", "--output", "dumps"]) == 1
    done.set()
    line = capsys.readouterr().err.splitlines()[-1]
    assert reason in line
    assert "--wikipedia FILE" in line
