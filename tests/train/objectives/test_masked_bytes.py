"""Single bytes as the unit of masking and prediction."""

import re
from typing import Any

import numpy as np
import pytest

from tokenfree.core.settings import build
from tokenfree.preprocess.dataset.manifest import load_manifest, load_vocabulary
from tokenfree.preprocess.text.specials import BYTE_CLS as CLS
from tokenfree.preprocess.text.specials import BYTE_MASK as MASK
from tokenfree.preprocess.text.specials import BYTE_PAD as PAD
from tokenfree.preprocess.text.specials import BYTE_SEP as SEP
from tokenfree.preprocess.text.specials import BYTE_UNK as UNK
from tokenfree.train.batches.base import KEPT, MASKED, REPLACED, Arrays
from tokenfree.train.checks import check
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.objectives.masked_bytes import Config

LENGTH = 128
TEXTS = [
    "the quick brown fox\njumps",
    "żółw и 字字 wait 😀😀 a",
    "日本語\u3000テキスト",
    "é",
    "a\x02b",
    "字" * 90,
    "",
    " ",
]


def collate(texts: list[str], ids: list[int] | None = None, *, length: int = LENGTH, **config: Any) -> Arrays:
    rows = {
        "codepoints": [np.array([ord(c) for c in text], np.int32) for text in texts],
        "whitespace": [np.array([c.isspace() for c in text], np.bool_) for text in texts],
    }
    return Config(**config).collator(None, length, 0)(
        rows, np.arange(len(texts)) if ids is None else np.array(ids)
    )


@pytest.mark.parametrize("mask_fraction", [0.15, 0.5, 1.0])
@pytest.mark.parametrize("text", TEXTS)
def test_inputs_with_their_targets_are_the_bytes_of_the_text(text: str, mask_fraction: float) -> None:
    batch = collate([text] * 40, mask_fraction=mask_fraction)
    encoded = text.encode()
    for row in range(40):
        real = batch["target_mask"][row]
        positions, ids = batch["target_positions"][row][real], batch["target_ids"][row][real]
        size = int(batch["mask"][row].sum())
        line = batch["codepoints"][row].copy()
        assert (line[0], line[size - 1], line[size:].any()) == (CLS, SEP, PAD)
        shown = line[positions]
        kinds = np.select([shown == MASK, shown == ids], [MASKED, KEPT], REPLACED)
        np.testing.assert_array_equal(batch["target_kinds"][row][real], kinds)
        line[positions] = ids
        found = bytes(line[1 : size - 1].tolist())
        assert re.sub(rb"[\0-\4]", bytes([UNK]), found) in re.sub(rb"[\0-\4]", bytes([UNK]), encoded)
        assert len(found) == len(encoded) or len(encoded) > LENGTH - 2
        assert batch["num_characters"][row] == sum(byte & 0xC0 != 0x80 for byte in found)
        assert not any(chr(byte).isspace() for byte in ids if byte < 0x80)
        assert set(batch["target_codepoints"][row][real].tolist()) <= {*map(ord, text)}
        for codepoint, byte in zip(batch["target_codepoints"][row][real].tolist(), ids.tolist(), strict=True):
            assert byte in chr(codepoint).encode()
        many = sum(not (byte < 0x80 and chr(byte).isspace()) for byte in found)
        assert abs(real.sum() - (max(1, mask_fraction * many) if many else 0)) <= 0.5


def test_most_are_masked_and_some_replaced() -> None:
    batch = collate(TEXTS[:1] * 3000)
    kinds = np.bincount(batch["target_kinds"][batch["target_mask"]], minlength=3)
    assert kinds / kinds.sum() == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def test_a_row_is_masked_by_its_sample_id_alone() -> None:
    batch, again = collate(TEXTS), collate([TEXTS[i] for i in (1, 5)], ids=[1, 5])
    for name, array in batch.items():
        np.testing.assert_array_equal(again[name], array[[1, 5]])


def test_the_place_of_a_byte_is_that_in_its_word() -> None:
    """White space of several bytes is text; no byte of a character is taken for white space."""
    objective = Config(mask_fraction=1.0)
    symbols = objective.symbols(None)
    assert symbols is not None
    for text in ("ab żółw", "à\xa0à 日本\u3000語 😀"):
        rows = {
            "codepoints": [np.array([*map(ord, text)], np.int32)],
            "whitespace": [np.array([c.isspace() for c in text])],
        }
        ids, clues = symbols.read(rows)
        words = text.encode().split(b" ")
        assert bytes(ids.tolist()) == b"".join(words)
        assert clues.tolist() == [len(word) * 32 + at for word in words for at in range(len(word))]
        batch = objective.collator(None, LENGTH, 0)(rows, np.arange(1))
        order = np.argsort(batch["target_positions"][batch["target_mask"]])
        assert symbols.clues(batch)[batch["target_mask"]][order].tolist() == clues.tolist()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {},
            "model.embedder.name: codepoint_hash reads characters, but objective.name: masked_bytes gives it bytes",
        ),
        (
            {"embedder": "byte_table", "downsampler": "word_pooling", "upsampler": "subword_queries"},
            "model.downsampler.name: word_pooling needs words, but objective.name: masked_bytes gives none",
        ),
    ],
)
def test_models_of_other_symbols_are_refused(corpus: str, model: dict[str, Any], message: str) -> None:
    recipe = build(
        PretrainRecipe, {"model": model, "objective": "masked_bytes", "train": {"length": 64}}, source="test"
    )
    assert message in "\n".join(check(recipe, load_manifest(corpus), vocabulary=load_vocabulary(corpus)))
