"""One file over HTTP: whole or not at all, whatever the server does."""

import dataclasses
import hashlib
import random
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from requests.adapters import HTTPAdapter

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.locks import exclusive
from tokenfree.core.machine import version_of
from tokenfree.preprocess import download as fetch
from tokenfree.preprocess.download import DumpFile, Item, Mirror

DATA = random.Random(1).randbytes(600_000)
SHA1 = hashlib.sha1(DATA).hexdigest()
HALF = 16 * fetch.BLOCK


@pytest.fixture
def mirror(dump_server: Any, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetch, "BACKOFF", 0.001)
    monkeypatch.setattr(fetch, "TIMEOUT", 5)
    dump_server.files["/file"] = DATA
    return Mirror(dump_server.url, allow_http=True, notice=lambda text: None)


def get(mirror: Mirror, path: Path, *, sha1: str = SHA1, size: int = len(DATA)) -> list[int]:
    """Fetch `/file`, and return how many bytes each report of progress was about."""
    new: list[int] = []
    item = Item(DumpFile("file", f"{mirror.url}/file", sha1), path, size, is_whole=False)
    mirror.fetch(item, lambda done, block: new.append(block))
    assert hashlib.sha1(path.read_bytes()).hexdigest() == sha1
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]
    return new


def begin(path: Path, data: bytes = DATA) -> None:
    """Leave what a download of `data` leaves that was killed half way."""
    path.with_name(path.name + ".part").write_bytes(data[:HALF])


def test_whole(mirror: Mirror, dump_server: Any, tmp_path: Path) -> None:
    assert sum(get(mirror, tmp_path / "file")) == len(DATA)
    assert dump_server.gets("/file") == [(200, len(DATA))]
    assert dump_server.agents == {f"tokenfree/{version_of('tokenfree')} (tokenfree download)"}


def test_a_mirror_that_does_not_answer_is_reported_in_words(mirror: Mirror, tmp_path: Path) -> None:
    notices: list[str] = []
    nobody = dataclasses.replace(mirror, url="http://127.0.0.1:9", notice=notices.append)
    with pytest.raises(JobError) as caught:
        get(nobody, tmp_path / "file")
    assert notices[0] == "Failed to establish a new connection: [Errno 111] Connection refused; again in 0 s"
    assert str(caught.value).startswith(
        "http://127.0.0.1:9/file: Failed to establish a new connection: [Errno 111]"
    )


def test_an_empty_file(mirror: Mirror, dump_server: Any, tmp_path: Path) -> None:
    dump_server.files["/file"] = b""
    get(mirror, tmp_path / "file", sha1=hashlib.sha1(b"").hexdigest(), size=0)


def test_a_cut_connection_costs_at_most_a_block(mirror: Mirror, dump_server: Any, tmp_path: Path) -> None:
    dump_server.fault("/file", dump_server.cut(HALF), dump_server.cut(1000))
    get(mirror, tmp_path / "file")
    assert dump_server.gets("/file") == [(200, HALF), (206, 1000), (206, len(DATA) - HALF)]


def test_a_later_command_asks_for_the_rest_only(mirror: Mirror, dump_server: Any, tmp_path: Path) -> None:
    begin(tmp_path / "file")
    assert sum(get(mirror, tmp_path / "file")) == len(DATA) - HALF
    assert dump_server.gets("/file") == [(206, len(DATA) - HALF)]


def test_a_file_that_only_lacked_its_name_is_not_asked_for(
    mirror: Mirror, dump_server: Any, tmp_path: Path
) -> None:
    (tmp_path / "file.part").write_bytes(DATA)
    assert get(mirror, tmp_path / "file") == []
    assert dump_server.gets("/file") == []


def test_more_than_the_file_is_thrown_away(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(DATA + b"more")
    get(mirror, tmp_path / "file")


def test_a_server_without_range_sends_all_again(mirror: Mirror, dump_server: Any, tmp_path: Path) -> None:
    dump_server.ranges = False
    dump_server.fault("/file", dump_server.cut(HALF))
    get(mirror, tmp_path / "file")
    assert dump_server.gets("/file") == [(200, HALF), (200, len(DATA))]


def test_a_server_that_never_gets_further_is_given_up(
    mirror: Mirror, dump_server: Any, tmp_path: Path
) -> None:
    dump_server.ranges = False
    dump_server.fault("/file", *[dump_server.cut(HALF)] * 50)
    with pytest.raises(JobError, match="same command again later, which resumes"):
        get(mirror, tmp_path / "file")
    assert len(dump_server.gets("/file")) == fetch.ATTEMPTS
    assert (tmp_path / "file.part").stat().st_size == HALF


def test_a_server_that_gets_on_slowly_is_not(mirror: Mirror, dump_server: Any, tmp_path: Path) -> None:
    dump_server.fault("/file", *[dump_server.cut(20_000)] * 25)
    get(mirror, tmp_path / "file")
    assert len(dump_server.gets("/file")) == 26


def test_a_file_that_changed_is_not_glued_to_its_old_half(mirror: Mirror, tmp_path: Path) -> None:
    begin(tmp_path / "file", data=b"old" * 200_000)
    with pytest.raises(JobError, match="It was removed"):
        get(mirror, tmp_path / "file")
    get(mirror, tmp_path / "file")


def test_wrong_bytes_are_removed(mirror: Mirror, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=rf"file: its SHA-1 is not {'0' * 40}.*--mirror"):
        get(mirror, tmp_path / "file", sha1="0" * 40)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("status", [429, 500, 503])
def test_throttling_passes(
    mirror: Mirror, dump_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    dump_server.fault("/file", *[dump_server.refuse(status)] * 3)
    get(mirror, tmp_path / "file")
    assert [status for status, _ in dump_server.gets("/file")] == [status] * 3 + [200]
    assert waits == [0.001, 0.002, 0.004]


@pytest.mark.parametrize("status", [403, 404])
def test_answers_that_do_not_pass(mirror: Mirror, dump_server: Any, tmp_path: Path, status: int) -> None:
    dump_server.fault("/file", dump_server.refuse(status))
    with pytest.raises(JobError, match=str(status)):
        get(mirror, tmp_path / "file")
    assert len(dump_server.gets("/file")) == 1


def test_a_cut_list_is_asked_for_again(mirror: Mirror, dump_server: Any) -> None:
    dump_server.files["/list"] = "añb".encode()
    dump_server.fault("/list", dump_server.cut(2))
    assert mirror._text(f"{dump_server.url}/list") == "añb"
    assert mirror.size(f"{dump_server.url}/list") == 4


def test_more_than_was_told_is_not_taken(mirror: Mirror, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="more than its 5,000 bytes came"):
        get(mirror, tmp_path / "file", size=5000)
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:1/file", "ftp://127.0.0.1/file", "file:///etc/hostname"]
)
def test_a_redirect_does_not_lead_away_from_encryption(
    mirror: Mirror, dump_server: Any, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = HTTPAdapter.send

    # Stands for a server with a certificate.
    def encrypted(adapter: Any, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://")
        return send(adapter, request, **options)

    monkeypatch.setattr(HTTPAdapter, "send", encrypted)
    dump_server.fault("/file", dump_server.refuse(302, Location=target))
    careful, url = (
        dataclasses.replace(mirror, allow_http=False),
        dump_server.url.replace("http://", "https://"),
    )
    with pytest.raises(JobError, match=rf"{url}/file: No connection adapters.*{target}"):
        careful._text(f"{url}/file")


def test_redirects_are_followed_a_few_times(mirror: Mirror, dump_server: Any) -> None:
    dump_server.files["/list"] = b"list"
    dump_server.fault("/moved", dump_server.refuse(301, Location="/list"))
    assert mirror._text(f"{dump_server.url}/moved") == "list"
    dump_server.fault("/round", *[dump_server.refuse(301, Location="/round")] * 50)
    with pytest.raises(JobError, match="redirects"):
        mirror._text(f"{dump_server.url}/round")


def test_nobody_there(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
    with pytest.raises(JobError, match="refused"):
        mirror._text(url)
    assert len(waits) == fetch.ATTEMPTS - 1


def test_a_server_that_stalls(
    mirror: Mirror, dump_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT", 0.05)
    done = threading.Event()
    dump_server.fault("/file", lambda answer: done.wait(2))
    get(dataclasses.replace(mirror, notice=lambda text: done.set()), tmp_path / "file")


def test_two_commands_do_not_write_one_file(mirror: Mirror, dump_server: Any, tmp_path: Path) -> None:
    lock = tmp_path / "file.part.lock"
    with exclusive(lock, UserError("held")), pytest.raises(UserError, match="another command"):
        get(mirror, tmp_path / "file")
    assert dump_server.gets("/file") == []
