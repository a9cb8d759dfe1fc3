"""Windows against a version written out with strings, and what is to be found in them."""

from pathlib import Path

import numpy as np
import pytest

from tests.train.tasks.question_answering.conftest import Write, record
from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.tasks.question_answering.readable import (
    QUESTION_MARKER,
    codepoints_of,
    readable_article,
    readable_text,
)
from tokenfree.train.tasks.question_answering.tydi_files import TydiExample, read_tydi
from tokenfree.train.tasks.question_answering.windows import (
    MINIMAL,
    UNKNOWN,
    Target,
    WindowCutter,
    frame_windows,
    with_targets,
)

CLS, SEP, Q, P0, P1, P2 = (chr(0xE000 + n) for n in (0, 1, 5, 6, 7, 8))
PASSAGES = ["Äiti on 🙂.", "日本語", "Se on 1869."]


@pytest.fixture
def example(write: Write) -> TydiExample:
    return next(read_tydi(write(record(PASSAGES))))


def text_of(codepoints: np.ndarray) -> str:
    return "".join(map(chr, codepoints.tolist()))


def test_an_article_has_markers_and_knows_its_bytes(example: TydiExample) -> None:
    article = readable_article(example, 45)
    expected = f"{P0} {PASSAGES[0]} {P1} {PASSAGES[1]} {P2} {PASSAGES[2]}"
    assert text_of(article.codepoints) == expected
    for character, begin, end in zip(expected, article.starts.tolist(), article.ends.tolist(), strict=True):
        if begin >= 0:
            assert example.article[begin:end].decode() == character
    nowhere = [index for index, begin in enumerate(article.starts.tolist()) if begin < 0]
    assert nowhere == [0, 1, 12, 13, 14, 18, 19, 20]
    assert [text_of(article.codepoints[part.start : part.stop]) for part in article.passages.values()] == PASSAGES


def test_passages_beyond_the_most_and_without_text_are_left_out(write: Write) -> None:
    line = record(["one", "", "three", "four"])
    line["passage_answer_candidates"][0]["plaintext_end_byte"] = -1
    article = readable_article(next(read_tydi(write(line))), 3)
    assert text_of(article.codepoints) == f"{P2} three"
    assert list(article.passages) == [2]
    assert len(readable_article(next(read_tydi(write(line))), 2)) == 0


def test_windows_are_those_written_out_with_strings(test_data: Path) -> None:
    cutter = WindowCutter(length=300, max_question=20, stride=64, marker=QUESTION_MARKER)
    for example in read_tydi(test_data / "tydiqa" / "tiny_dev.jsonl.gz"):
        article = readable_article(example, 5)
        texts = [example.article[slice(*span)].decode() for span in example.passages[:5]]
        whole = " ".join(f"{chr(0xE006 + index)} {text}" for index, text in enumerate(texts))
        head = f"{CLS}{Q}{example.question[-20:]}{SEP}"
        expected, begin = [], 0
        while True:
            part = whole[begin : begin + 300 - len(head) - 1]
            expected.append(f"{head}{part}{SEP}")
            if begin + len(part) == len(whole):
                break
            begin += min(64, len(part))
        windows = cutter.cut(codepoints_of(example.question), article)
        arrays = frame_windows(windows, 300)
        assert len(windows) > 3
        for row, text in enumerate(expected):
            assert text_of(arrays.codepoints[row]) == text.ljust(300, "\0")
            assert arrays.mask[row].sum() == len(text)
            assert arrays.segments[row].tolist() == [0] * len(head) + [1] * (len(text) - len(head)) + [0] * (
                300 - len(text)
            )
            assert arrays.question[row].sum() == len(head)
            assert arrays.question[row, : len(head)].all()
        assert len(expected) == len(windows)


@pytest.mark.parametrize(
    ("characters", "expected"),
    [
        (0, []),
        (1, [(0, 1)]),
        (9, [(0, 9)]),
        (10, [(0, 10)]),
        (11, [(0, 10), (4, 11)]),
        (19, [(0, 10), (4, 14), (8, 18), (12, 19)]),
    ],
)
def test_the_last_window_ends_with_the_text(characters: int, expected: list[tuple[int, int]]) -> None:
    cutter = WindowCutter(length=16, max_question=3, stride=4)
    windows = cutter.cut(codepoints_of("abcd"), readable_text("x" * characters))
    assert [(window.part.start, window.part.stop) for window in windows] == expected
    assert all(text_of(window.question) == "bcd" for window in windows)


def test_strides_are_never_longer_than_a_window() -> None:
    windows = WindowCutter(length=16, max_question=3, stride=512).cut(codepoints_of("abc"), readable_text("x" * 25))
    assert [(window.part.start, window.part.stop) for window in windows] == [(0, 10), (10, 20), (20, 25)]


def test_no_room_is_refused() -> None:
    WindowCutter(length=7, max_question=3)
    for cutter in ({"length": 6, "max_question": 3}, {"length": 7, "max_question": 3, "marker": QUESTION_MARKER}):
        with pytest.raises(
            UserError, match="leave no room for the text beside questions of 3 characters; make it at least"
        ):
            WindowCutter(**cutter)


def test_characters_are_found_by_their_bytes() -> None:
    text = readable_text("aä🙂b")
    everything = text.passages[0]
    assert text.find((1, 3), everything) == range(1, 2)
    assert text.find((3, 8), everything) == range(2, 4)
    assert text.find((0, 8), everything) == range(4)
    assert text.find((3, 3), everything) is None
    assert text.find((3, 9), everything) is None
    assert text.find((0, 3), range(1, 4)) is None


def test_windows_with_the_whole_answer_are_kept_and_a_share_of_the_others() -> None:
    text = readable_text("".join(map(chr, range(0x4E00, 0x4E00 + 500))))
    windows = WindowCutter(length=30, max_question=5, stride=4).cut(codepoints_of("why"), text)
    target = Target(MINIMAL, range(100, 105))
    holding = [window for window in windows if {100, 104} <= set(window.part)]
    found = with_targets(windows, target, share_of_others=0.0, seed=0, sample=0)
    assert [window.part for window in found] == [window.part for window in holding]
    for window, codepoints in zip(found, frame_windows(found, 30).codepoints, strict=True):
        assert codepoints[window.first : window.last + 1].tolist() == text.codepoints[100:105].tolist()
        assert window.kind == MINIMAL
    every = with_targets(windows, target, share_of_others=1.0, seed=0, sample=0)
    assert [window.part for window in every] == [window.part for window in windows]
    assert {(w.first, w.last, w.kind) for w in every if w.part not in [h.part for h in holding]} == {(0, 0, UNKNOWN)}
    assert [w for w in with_targets(windows, None, share_of_others=1.0, seed=0, sample=0) if w.kind != UNKNOWN] == []


def test_the_share_is_drawn_by_seed_question_and_window() -> None:
    windows = WindowCutter(length=20, max_question=5, stride=1).cut(codepoints_of("why"), readable_text("x" * 3000))

    def kept(seed: int, sample: int) -> list[range]:
        drawn = with_targets(windows, None, share_of_others=0.1, seed=seed, sample=sample)
        return [window.part for window in drawn]

    assert len(kept(0, 0)) == pytest.approx(0.1 * len(windows), rel=0.2)
    assert kept(0, 0) == kept(0, 0) != kept(1, 0)
    assert kept(0, 0) != kept(0, 1)
