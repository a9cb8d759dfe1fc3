"""Inputs that are no stored files, or that the job itself writes: refused in words, or left out."""

import errno
import os
import socket
from pathlib import Path

import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.sources.splits import find_inputs


@pytest.mark.parametrize("field", ["wikipedia", "books"])
@pytest.mark.parametrize(
    "name",
    [
        "pipe.xml",
        "link.xml",
        "socket.xml",
        "/dev/zero",
        "file:///dev/zero",
        "/dev/fd/PIPE",
        "/dev/fd/FILE",
    ],
)
def test_what_is_no_stored_file_is_refused(field: str, name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.xml")
    (tmp_path / "link.xml").symlink_to("pipe.xml")
    (tmp_path / "text.txt").write_text("Seven geese.")
    ends = os.pipe()
    with socket.socket(socket.AF_UNIX) as server, open(tmp_path / "text.txt") as file:
        here = os.getcwd()
        os.chdir(tmp_path)  # the path of a socket has at most 108 characters
        server.bind("socket.xml")
        os.chdir(here)
        name = name.replace("PIPE", str(ends[0])).replace("FILE", str(file.fileno()))
        path = name if "/" in name else str(tmp_path / name)
        with pytest.raises(
            UserError, match=f"{field}: .*: is not a file, but a pipe, socket or device; save it"
        ):
            find_inputs(build(PreprocessConfig, {field: [path]}, source="test"))
    for end in ends:
        os.close(end)


def test_pipes_in_a_folder_are_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "book.txt").write_text("Seven geese.")
    assert [file.name for file in find_inputs(PreprocessConfig(books=(str(tmp_path),)))] == ["book.txt"]


@pytest.mark.parametrize("name", ["a::b.txt", os.fsdecode(b"caf\xe9.txt"), "memory://x::a.txt"])
@pytest.mark.parametrize("how", ["file", "folder", "glob", "above", "output"])
def test_names_that_fsspec_or_a_manifest_would_twist(name: str, how: str, tmp_path: Path) -> None:
    book = tmp_path / name
    book.parent.mkdir(parents=True, exist_ok=True)
    if how == "above":
        book.mkdir()
        book = book / "book.txt"
    book.write_text("Seven geese.")
    words = "'::' in a path would stand for a chain" if "::" in name else "this path is not UTF-8; rename it"
    paths = {"file": str(book), "glob": f"{book.parent}/*.txt"}
    if how == "output":
        with pytest.raises(UserError, match=words):
            Storage.at(f"{book}/data")
    else:
        with pytest.raises(UserError, match=f"books: .*{words}"):
            find_inputs(PreprocessConfig(books=(paths.get(how, str(tmp_path)),)))


def test_an_output_among_the_books_is_left_out(tmp_path: Path) -> None:
    for name in ("book.txt", "data/failures/replayed.jsonl", "data2/other.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Seven geese.")
    output = Storage.at(str(tmp_path / "data") + "/").url

    def names(path: str) -> list[str]:
        return [file.name for file in find_inputs(PreprocessConfig(books=(f"{tmp_path}{path}",)), output)]

    assert names("") == ["book.txt", "data2/other.txt"]
    assert names("/**/*") == ["book.txt", "data2/other.txt"]
    assert names("/data/failures/replayed.jsonl") == ["replayed.jsonl"]  # asked for by its name
    with pytest.raises(
        UserError, match=f"^books: all files of .*/data are in --output, .*: {output}. Give another"
    ):
        names("/data")
    for name in ("book.txt", "data2/other.txt"):
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match="books: all files of"):
        names("")


def found(path: Path, field: str = "books", output: str | None = None) -> list[str]:
    """The names of the inputs of a folder or glob."""
    return [
        file.name
        for file in find_inputs(build(PreprocessConfig, {field: [str(path)]}, source="test"), output)
    ]


@pytest.mark.parametrize(("field", "ending"), [("books", "txt"), ("wikipedia", "xml")])
def test_links_in_folders_and_globs_are_read_like_what_they_lead_to(
    field: str, ending: str, tmp_path: Path
) -> None:
    for name in ("store/4f1a", f"store/en/own.{ending}", f"inputs/own.{ending}"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Seven geese.")
    inputs = tmp_path / "inputs"
    (inputs / f"linked.{ending}").symlink_to("../store/4f1a")  # as the cache of a hub has them
    (inputs / "folder").symlink_to("../store/en")
    (inputs / f"again.{ending}").symlink_to(f"own.{ending}")  # of a file that is read anyway
    (inputs / "link.md").symlink_to("../store/4f1a")
    os.mkfifo(tmp_path / "pipe")
    (inputs / f"pipe.{ending}").symlink_to("../pipe")
    names = [f"folder/own.{ending}", f"linked.{ending}", f"own.{ending}"]
    assert found(inputs, field) == names
    assert found(inputs / f"**/*.{ending}", field) == names
    assert found(inputs / f"*/*.{ending}", field) == [f"folder/own.{ending}"]
    (size,) = {
        file.size for file in find_inputs(build(PreprocessConfig, {field: [str(inputs)]}, source="test"))
    }
    assert size == len("Seven geese.")


def test_links_to_a_file_are_one_input_whichever_comes_first(tmp_path: Path) -> None:
    (tmp_path / "z.txt").write_text("Seven geese.")
    (tmp_path / "a.txt").symlink_to("z.txt")
    paths = (str(tmp_path / "a.txt"), str(tmp_path / "z.txt"))
    for given in (paths, paths[::-1]):
        assert [file.name for file in find_inputs(PreprocessConfig(books=given))] == ["z.txt"]


def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("Seven geese.")
    (tmp_path / ".#book").symlink_to("me@here.1234:5")  # an editor's lock
    assert found(tmp_path) == ["book.txt"]
    (tmp_path / "a.txt").symlink_to("gone.txt")
    for path in (tmp_path, tmp_path / "*"):
        with pytest.raises(UserError, match=rf"books: {tmp_path}/a\.txt is a link that leads nowhere"):
            found(path)


def test_links_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    """Twelve folders that each lead to all others: half a billion paths."""
    for number in range(12):
        folder = tmp_path / "inputs" / f"{number:02}"
        folder.mkdir(parents=True)
        (folder / "book.txt").write_text("Seven geese.")
        (folder / "up").symlink_to("..")
        (folder / "root").symlink_to("/")
        for other in range(12):
            (folder / f"to{other:02}").symlink_to(f"../{other:02}")
    (tmp_path / "beside.txt").write_text("Seven geese.")
    (tmp_path / "inputs" / "above").symlink_to("..")
    assert found(tmp_path / "inputs") == [f"{number:02}/book.txt" for number in range(12)]


def test_links_into_the_output_are_left_out(tmp_path: Path) -> None:
    for name in ("disk/data/failures/replayed.jsonl", "books/book.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Seven geese.")
    (tmp_path / "books" / "data").symlink_to("../disk/data")
    (tmp_path / "books" / "one.jsonl").symlink_to("../disk/data/failures/replayed.jsonl")
    for output in ("disk/data", "books/data"):
        assert found(tmp_path / "books", output=Storage.at(str(tmp_path / output)).url) == ["book.txt"]


@pytest.mark.parametrize("path", ["", "/*/*.txt", "/**/*.txt"])
def test_a_folder_that_may_not_be_looked_into_is_named(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "book.txt").write_text("Seven geese.")
    scandir = os.scandir

    def refused(folder: str) -> object:  # root may look into any
        if str(folder).rstrip("/") == str(tmp_path / "b"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refused)
    config = build(PreprocessConfig, {"books": [f"{tmp_path}{path}"]}, source="test")
    with pytest.raises(UserError, match=f"^books: .*no right to look into the folder {tmp_path}/b"):
        find_inputs(config, str(tmp_path / "out"))
