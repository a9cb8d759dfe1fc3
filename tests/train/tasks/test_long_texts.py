"""Long texts: windows of them are as large as what they read, and texts and marks beyond all bounds are refused."""

from typing import Any

import pytest

from tests.train.conftest import WORDS
from tests.train.tasks.test_tagging import CHARACTERS, inputs_of
from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import build
from tokenfree.train.inference.masked_text import read_masked_text
from tokenfree.train.tasks.classification import Config
from tokenfree.train.tasks.examples.example import TextExample


@pytest.mark.parametrize("model", [CHARACTERS, WORDS], ids=["characters", "words"])
def test_a_window_is_as_large_as_what_it_reads(model: dict[str, Any]) -> None:
    inputs = inputs_of(model)
    windows = inputs.cut(inputs.encode("word " * 20_000), 0.5)
    assert len(windows) > 100
    assert max(len(window.vectors) for window in windows) <= 144


def test_a_text_beyond_all_bounds_is_refused() -> None:
    task = build(Config, {"labels": ["no", "yes"]}, source="test")
    with pytest.raises(UserError, match=r"file:7: a text has 10,000,001 characters\. Split it"):
        task.collator(inputs_of(CHARACTERS), 0).items([TextExample("file:7", "a" * 10_000_001)], training=True)


def test_a_mark_that_hides_more_than_any_model_reads_is_refused() -> None:
    with pytest.raises(UserError, match=r"\[MASK:999999999\] hides more than 16,384 characters"):
        read_masked_text("the [MASK:999999999] house")
