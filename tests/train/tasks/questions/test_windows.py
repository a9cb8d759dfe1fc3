"""Windows against a version written out with strings, and what is to be found in them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.train.tasks.conftest import Write, article_of, characters, record, text_of
from tokenfree.core.errors import UserError
from tokenfree.train.tasks.base import Item
from tokenfree.train.tasks.qa_squad import Config as QaSquad
from tokenfree.train.tasks.qa_squad import SquadExample
from tokenfree.train.tasks.qa_tydi import Config, TydiExample, read_tydi
from tokenfree.train.tasks.questions import (
    MINIMAL,
    UNKNOWN,
    AnswerTarget,
    Passage,
    QuestionCollator,
    Readable,
    Window,
    readable,
    with_targets,
)

CLS, SEP, Q, P0, P1, P2 = (chr(0xE000 + n) for n in (0, 1, 5, 6, 7, 8))
PASSAGES = ["Äiti on 🙂.", "日本語", "Se on 1869."]


@pytest.fixture
def example(write: Write) -> TydiExample:
    return next(read_tydi(write(record(PASSAGES))))


def reader(length: int, max_question: int, stride: int = 512, *, markers: bool = False) -> QuestionCollator:
    task = (Config if markers else QaSquad)(max_question=max_question, stride=stride)
    return task.collator(characters(length), 0)


def asked(question: str, text: str) -> SquadExample:
    return SquadExample("a:1", "a", question, text, None)


def cut(reader: QuestionCollator, question: str, text: str) -> list[Window]:
    return reader.cut(reader.read(asked(question, text)))


def plain(text: str) -> Readable:
    return reader(64, 4).read(asked("", text)).text


def test_an_article_has_markers_and_knows_its_bytes(example: TydiExample) -> None:
    article = article_of(example)
    expected = f"{P0} {PASSAGES[0]} {P1} {PASSAGES[1]} {P2} {PASSAGES[2]}"
    assert text_of(article.read.symbols) == expected
    for character, begin, end in zip(expected, article.starts.tolist(), article.ends.tolist(), strict=True):
        if begin >= 0:
            assert example.article[begin:end].decode() == character
    nowhere = [index for index, begin in enumerate(article.starts.tolist()) if begin < 0]
    assert nowhere == [0, 1, 12, 13, 14, 18, 19, 20]
    assert [
        text_of(article.read.symbols[part.start : part.stop]) for part in article.passages.values()
    ] == PASSAGES


def test_passages_beyond_the_most_and_without_text_are_left_out(write: Write) -> None:
    line = record(["one", "", "three", "four"])
    line["passage_answer_candidates"][0]["plaintext_end_byte"] = -1
    article = article_of(next(read_tydi(write(line))), 3)
    assert text_of(article.read.symbols) == f"{P2} three"
    assert list(article.passages) == [2]
    assert len(article_of(next(read_tydi(write(line))), 2)) == 0


def test_windows_are_those_written_out_with_strings(test_data: Path) -> None:
    of_windows = reader(300, 20, 64, markers=True)
    for example in read_tydi(str(test_data / "tydiqa" / "tiny_dev.jsonl.gz")):
        example = dataclasses.replace(example, passages=example.passages[:5])
        texts = [example.article[slice(*span)].decode() for span in example.passages]
        whole = " ".join(f"{chr(0xE006 + index)} {text}" for index, text in enumerate(texts))
        head = f"{CLS}{Q}{example.question[-20:]}{SEP}"
        expected, begin = [], 0
        while True:
            part = whole[begin : begin + 300 - len(head) - 1]
            expected.append(f"{head}{part}{SEP}")
            if begin + len(part) == len(whole):
                break
            begin += min(64, len(part))
        windows = of_windows.cut(of_windows.read(example))
        arrays = of_windows([Item(0, 300, (example, window)) for window in windows], np.arange(len(windows)))
        assert len(windows) > 3
        for row, text in enumerate(expected):
            assert text_of(arrays["codepoints"][row]) == text.ljust(300, "\0")
            assert arrays["mask"][row].sum() == len(text)
            assert arrays["segments"][row].tolist() == [0] * len(head) + [1] * (len(text) - len(head)) + [
                0
            ] * (300 - len(text))
            assert arrays["global"][row].sum() == len(head)
            assert arrays["global"][row, : len(head)].all()
        assert len(expected) == len(windows)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, []),
        (1, [(0, 1)]),
        (9, [(0, 9)]),
        (10, [(0, 10)]),
        (11, [(0, 10), (4, 11)]),
        (19, [(0, 10), (4, 14), (8, 18), (12, 19)]),
    ],
)
def test_the_last_window_ends_with_the_text(size: int, expected: list[tuple[int, int]]) -> None:
    of_windows = reader(16, 3, 4)
    windows = cut(of_windows, "abcd", "x" * size)
    assert [(window.part.start, window.part.stop) for window in windows] == expected
    assert text_of(of_windows.read(asked("abcd", "x")).question.symbols) == "bcd"


def test_strides_are_never_longer_than_a_window() -> None:
    windows = cut(reader(16, 3), "abc", "x" * 25)
    assert [(window.part.start, window.part.stop) for window in windows] == [(0, 10), (10, 20), (20, 25)]


def test_no_room_is_refused() -> None:
    reader(17, 13)
    for length, markers in ((16, False), (17, True)):
        with pytest.raises(
            UserError, match=r"leave no room for the text next to questions of 13\. Make it larger"
        ):
            reader(length, 13, markers=markers)


def test_vectors_are_found_by_their_bytes() -> None:
    text = plain("aä🙂b")
    assert text.find((1, 3), 0) == range(1, 2)
    assert text.find((3, 8), 0) == range(2, 4)
    assert text.find((0, 8), 0) == range(4)
    assert text.find((3, 3), 0) is None
    assert text.find((3, 9), 0) is None
    assert text.find((0, 3), 1) is None
    later = readable([Passage(2, 10, b"abc")], characters(64), markers=False)
    assert later.find((9, 12), 2) is None
    assert later.find((10, 12), 2) == range(2)


def test_windows_with_the_whole_answer_are_kept_and_a_share_of_the_others() -> None:
    of_windows = reader(30, 5, 4)
    example = asked("why", "".join(map(chr, range(0x4E00, 0x4E00 + 500))))
    reading = of_windows.read(example)
    windows, symbols = of_windows.cut(reading), reading.text.read.symbols
    target = AnswerTarget(MINIMAL, range(100, 105))
    holding = [window for window in windows if {100, 104} <= set(window.part)]
    found = with_targets(windows, target, reading.offset, share=0.0, seed=0, sample=0)
    assert [window.part for window in found] == [window.part for window in holding]
    arrays = of_windows([Item(0, 30, (example, window)) for window in found], np.arange(len(found)))
    for window, codepoints in zip(found, arrays["codepoints"], strict=True):
        assert codepoints[window.first : window.last + 1].tolist() == symbols[100:105].tolist()
        assert window.kind == MINIMAL
    every = with_targets(windows, target, reading.offset, share=1.0, seed=0, sample=0)
    assert [window.part for window in every] == [window.part for window in windows]
    assert {(w.first, w.last, w.kind) for w in every if w.part not in [h.part for h in holding]} == {
        (0, 0, UNKNOWN)
    }
    none = with_targets(windows, None, reading.offset, share=1.0, seed=0, sample=0)
    assert {window.kind for window in none} == {UNKNOWN}


def test_the_share_is_drawn_by_seed_question_and_window() -> None:
    windows = cut(reader(20, 5, 1), "why", "x" * 3000)

    def kept(seed: int, sample: int) -> list[range]:
        drawn = with_targets(windows, None, 0, share=0.1, seed=seed, sample=sample)
        return [window.part for window in drawn]

    assert len(kept(0, 0)) == pytest.approx(0.1 * len(windows), rel=0.2)
    assert kept(0, 0) == kept(0, 0) != kept(1, 0)
    assert kept(0, 0) != kept(0, 1)
