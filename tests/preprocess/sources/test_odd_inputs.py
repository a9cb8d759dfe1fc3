"""Inputs that are no stored files, or that the job itself writes: refused in words, or left out."""

import os
import socket
from pathlib import Path

import pytest

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import build
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.sources.input_splits import find_inputs


@pytest.mark.parametrize("field", ["wikipedia", "books"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pipe.xml", "a pipe"),
        ("link.xml", "a pipe"),
        ("socket.xml", "a socket"),
        ("/dev/zero", "a device"),
        ("file:///dev/zero", "a device"),
        ("/dev/fd/PIPE", "a pipe"),
        ("/dev/fd/FILE", "an open file of one process"),
    ],
)
def test_what_is_no_stored_file_is_refused(field: str, name: str, kind: str, tmp_path: Path) -> None:
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
        with pytest.raises(UserError, match=f"{field}: .* is {kind}, and inputs are read more than once; save it"):
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
    with pytest.raises(UserError, match="is a folder without books"):
        names("/data")
