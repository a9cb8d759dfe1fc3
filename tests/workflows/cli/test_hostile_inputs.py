"""Hostile inputs, one class at a time: full disks, pipes and devices, odd line ends, half characters."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from tests.conftest import REPOSITORY
from tokenfree.core.errors import UserError
from tokenfree.train.inference.corpus import read_texts as read_corpus
from tokenfree.train.tasks.examples.files import read_lines
from tokenfree.train.tasks.examples.tagged import read_tagged
from tokenfree.train.tasks.examples.texts import read_texts
from tokenfree.train.tasks.qa_squad import read_squad
from tokenfree.train.tasks.qa_tydi import read_tydi
from tokenfree.workflows import cli

KEPT = REPOSITORY / "tests" / "golden" / "kept"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with data, a run and a fine-tuned run."""
    shutil.copytree(KEPT, tmp_path / "kept")
    monkeypatch.chdir(tmp_path / "kept")
    return tmp_path / "kept"


@pytest.mark.parametrize(
    "command",
    [
        "report run --output out",
        "embed run examples.tsv --output out",
    ],
)
def test_a_full_disk_is_one_line(
    folder: Path, limit_files: Callable[[int], None], capfd: pytest.CaptureFixture[str], command: str
) -> None:
    limit_files(500)
    assert cli.main(command.split()) == 2
    limit_files(1 << 30)
    assert capfd.readouterr().err.splitlines()[-1] == (
        "tokenfree: cannot write (File too large). Free space for the output and in TMPDIR, then run the same command "
        "again."
    )


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("model.onnx: Disk quota exceeded"),
    ],
)
def test_libraries_report_a_full_disk_in_their_own_ways(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr("tokenfree.train.huggingface.onnx.write_graph", fail)
    assert cli.main(["export", "run", "--to", "onnx", "out"]) == 2
    said = "Disk quota exceeded" if "quota" in str(error) else "No space left on device"
    assert capsys.readouterr().err.startswith(
        f"tokenfree: cannot write ({said}). Free space for the output and in TMPDIR"
    )


def test_a_full_disk_behind_standard_output(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tokenfree", "inspect", "data"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.decode().startswith("tokenfree: cannot write (No space left on device). Free space")


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device"])
@pytest.mark.parametrize(
    "command",
    [
        "finetune classification --init-from run --train.length 64 --train FILE --output out",
        "finetune classification --init-from run --train.length 64 --train examples.tsv --dev FILE --output out",
        "evaluate finetuned --data FILE",
        "predict finetuned FILE",
        "embed run FILE --output out",
        "preprocess --books FILE --output out",
        "preprocess --books book.txt --vocabulary.model FILE --output out",
        "pretrain FILE --data data --output out",
        "pretrain canine-s-tiny --config FILE --data data --output out",
    ],
)
def test_what_is_no_file_is_refused_by_every_reader(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, kind: str
) -> None:
    Path("book.txt").write_text("Seven geese.")
    os.mkfifo("pipe")
    name = {"a pipe": "pipe", "a socket": "socket", "a device": "/dev/zero"}[kind]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert cli.main([word.replace("FILE", name) for word in command.split()]) == 2
    told = capsys.readouterr().err
    assert name in told
    assert told.endswith("save it as a file first\n")
    assert "is not a file, but a " in told


TYDI = {
    "example_id": 1,
    "language": "english",
    "document_plaintext": "Ten geese swim.",
    "question_text": "How many?",
    "passage_answer_candidates": [{"plaintext_start_byte": 0, "plaintext_end_byte": 15}],
}


@pytest.mark.parametrize(
    ("name", "lines", "read"),
    [
        ("lines.txt", ["ten geese", "", "a lake"], lambda path: list(read_lines(path))),
        ("corpus.txt", ["ten geese", "", "a lake"], lambda path: list(read_corpus(path))),
        ("corpus.jsonl", ['{"text": "ten geese"}', '{"text": "a lake"}'], lambda path: list(read_corpus(path))),
        ("texts.csv", ["text,label", "ten geese,x", "a lake,y"], read_texts),
        ("texts.tsv", ["text\tlabel", "ten geese\tx", "a lake\ty"], read_texts),
        ("texts.jsonl", ['{"text": "ten geese", "label": "x"}', '{"text": "a lake", "label": "y"}'], read_texts),
        ("stsa.dev", ["1 ten geese", "0 a lake"], read_texts),
        ("a.task.dev", ["1\tten geese", "0\ta lake"], read_texts),
        ("tags.conll", ["ten O", "geese B-X", "", "a O"], read_tagged),
        ("questions.jsonl", [json.dumps({**TYDI, "example_id": number}) for number in (1, 2)],
         lambda path: [(one.key, one.example_id) for one in read_tydi(path)]),
    ],
)  # fmt: skip
def test_lines_that_end_with_crlf_are_those_that_end_with_lf(
    tmp_path: Path, name: str, lines: list[str], read: Callable[[str], Any]
) -> None:
    path = tmp_path / name
    path.write_bytes("\n".join([*lines, ""]).encode())
    expected = read(str(path))
    assert len(expected) > 1
    path.write_bytes("\r\n".join([*lines, ""]).encode())
    assert read(str(path)) == expected


def test_cr_inside_of_a_line_stays_where_lines_end_with_lf(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ten\rgeese\na lake")
    assert list(read_lines(str(tmp_path / "a.txt"))) == list(read_corpus(str(tmp_path / "a.txt")))
    assert list(read_lines(str(tmp_path / "a.txt"))) == ["ten\rgeese", "a lake"]


HALF = "\ud83d"
SQUAD = {"id": f"i{HALF}", "question": f"q{HALF}", "answers": [{"text": f"{HALF} geese", "answer_start": 2}]}


@pytest.mark.parametrize(
    ("name", "content", "read"),
    [
        ("texts.jsonl", {"text": f"a {HALF} b", "label": f"x{HALF}"}, read_texts),
        ("tags.jsonl", {"tokens": [f"a{HALF}", HALF], "ner_tags": ["O", f"B-{HALF}"]}, read_tagged),
        ("squad.json", {"data": [{"paragraphs": [{"context": f"a {HALF} geese", "qas": [SQUAD]}]}]}, read_squad),
        ("tydi.jsonl", {**TYDI, "language": f"en{HALF}", "document_plaintext": f"{HALF} Ten geese swim."},
         lambda path: list(read_tydi(path))),
    ],
)  # fmt: skip
def test_half_characters_become_the_replacement_character(
    tmp_path: Path, name: str, content: Any, read: Callable[[str], Any]
) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    (found,) = read(str(tmp_path / name))
    assert "\ufffd" in repr(found) or b"\xef\xbf\xbd" in found.article
    assert "\\ud83d" not in repr(found)
    assert "\\xed\\xa0" not in repr(found)


def test_numbers_of_too_many_digits(tmp_path: Path) -> None:
    (tmp_path / "tydi.jsonl").write_text('{"example_id": ' + "9" * 5000 + "}")
    (tmp_path / "squad.json").write_text('{"data": ' + "9" * 5000 + "}")
    with pytest.raises(UserError, match=r"tydi\.jsonl: line 1: no JSON"):
        list(read_tydi(str(tmp_path / "tydi.jsonl")))
    with pytest.raises(UserError, match=r"squad\.json: no JSON"):
        read_squad(str(tmp_path / "squad.json"))


def test_a_report_shows_no_control_character(folder: Path) -> None:
    odd = "geese\x1b[2J\x9b31m\x07\u202e"
    os.rename("run", odd)
    shutil.copytree("finetuned", f"tuned {odd}")
    assert cli.main(["report", odd, f"tuned {odd}", "data", "sweep", "--output", "report.html"]) == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert "geese\\u001b[2J\\u009b31m\\u0007\\u202e" in page
    assert [sign for sign in page if (sign < " " and sign not in "\t\n") or "\x7f" <= sign <= "\x9f"] == []
