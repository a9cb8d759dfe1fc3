"""Byte2Word's own claims (arXiv 2211.12677): sizes, pooling of bytes, slots of subwords, and what is thrown away."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tokenfree.core.settings import build, merge
from tokenfree.preprocess.text.specials import BYTE_MASK as MASK
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.model.common.basic import as_rows
from tokenfree.train.model.costs import costs, step_memory
from tokenfree.train.model.downsamplers.words import find_words
from tokenfree.train.model.encoder import Encoder, ModelConfig
from tokenfree.train.objectives.base import Head
from tokenfree.workflows.recipes import library

SMALL: dict[str, Any] = {
    "width": 32,
    "character_width": 16,
    "embedder": "word_bytes",
    "downsampler": {"name": "word_pooling", "max_words": 32},
    "trunk": {"layers": 2, "heads": 4, "layer": "pre_ln"},
    "upsampler": "subword_queries",
}


def base() -> PretrainRecipe:
    return build(PretrainRecipe, library.read_based("byte2word-base"), source="test")


def encoder_of(**changes: Any) -> Encoder:
    torch.manual_seed(0)
    encoder = build(ModelConfig, merge(SMALL, changes), source="test").build().eval()
    # Initial weights are so small that a mistake could pass for rounding.
    for parameter in encoder.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return encoder


def text(*words: bytes, size: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Bytes, mask and ends of one example."""
    joined = b"".join(words)
    padded = joined.ljust(size, b"\x00")
    ends = torch.tensor([len(word) for word in words]).cumsum(0)
    return torch.tensor([list(padded)]), (torch.arange(len(padded)) < len(joined))[None], ends[None]


def pooled(encoder: Encoder, *words: bytes, size: int = 0) -> Tensor:
    """e_i of each word, [U, D]."""
    codepoints, mask, ends = text(*words, size=size)
    with torch.no_grad():
        return encoder.downsampler.pool(as_rows(encoder.embedder(codepoints)), find_words(mask, ends))[0]


def units(encoder: Encoder, *words: bytes, size: int = 0) -> Tensor:
    """What DOWN gives for each word, [U, D]."""
    codepoints, mask, ends = text(*words, size=size)
    with torch.no_grad():
        return encoder.encode(codepoints, mask, None, ends)[0].units_BUD[0]


def test_rows_of_bytes_and_of_what_is_none() -> None:
    """PAD's row is its own; numbers that are no byte have that of UNK."""
    rows = encoder_of().embedder(torch.tensor([[0, 1, 65, 255, 256, -1, 0x4E2D]]))
    assert rows.index_BC.tolist() == [[0, 1, 65, 255, 1, 1, 1]]


def test_parameters_of_the_front() -> None:
    parts = {part.name: part for part in costs(base().model, 4096)}
    front = {name: part.parameters for name, part in parts.items() if name.startswith(("byte", "word"))}
    assert front == {
        "byte table": 49_152,
        "byte keys + values": 73_728,
        "word queries + mixing": 98_304,
        "word FFN": 295_872,
        "word positions": 98_304,
        "word types": 384,
        "word norm": 384,
        "word projection": 197_632,
    }
    assert sum(front.values()) == 813_760
    assert front["byte table"] + front["byte keys + values"] + front["word FFN"] == 418_752
    assert parts["subword slots"].parameters == 16 * 1024


def test_multiply_accumulates_of_the_front() -> None:
    """For 512 words: keys and values once for the 256 bytes, and less than 0.2% of BERT-large in all."""
    for bytes_per_word, mixing in ((5, 1.0), (32, 6.3)):
        model = build(
            ModelConfig,
            merge(
                library.read_based("byte2word-base")["model"],
                {"downsampler": {"bytes_per_word": bytes_per_word}},
            ),
            source="test",
        )
        parts = {part.name: part.multiply_accumulates for part in costs(model, 512 * bytes_per_word)}
        assert parts["byte keys + values"] == 256 * 73_728
        assert round(parts["word queries + mixing"] / 1e6, 1) == mixing
        assert round(parts["word FFN"] / 1e6) == 151
        assert round(parts["word projection"] / 1e6) == 101
        assert round(parts["deep stack"] / 1e9, 1) == 167.5
        front = sum(parts[name] for name in parts if name.startswith(("byte", "word")))
        assert 0.0016 < front / parts["deep stack"] < 0.0018
        assert parts["byte keys + values"] + parts["word queries + mixing"] < 25.2e6


def test_the_cnn_has_about_a_fifth_of_a_million_parameters() -> None:
    model = build(PretrainRecipe, library.read_based("byte2word-cnn-base"), source="test").model
    parts = {part.name: part.parameters for part in costs(model, 4096)}
    names = ("byte table", "character convolutions", "highways", "pooled projection")
    assert sum(parts[name] for name in names) == pytest.approx(200_000, rel=0.01)


@pytest.mark.parametrize("name", ["word_pooling", "character_cnn"])
def test_memory_of_a_step_counts_words(name: str) -> None:
    model = build(ModelConfig, merge(SMALL, {"downsampler": {"name": name, "max_words": 32}}), source="test")
    short, long = step_memory(model, 128, 2, 10).activations, step_memory(model, 256, 2, 10).activations
    assert 1.5 < long / short < 3


def test_a_word_of_one_byte_is_its_value() -> None:
    for byte_positions in ("none", "learned"):
        encoder = encoder_of(downsampler={"byte_positions": byte_positions})
        down: Any = encoder.downsampler
        rows = encoder.embedder.table.weight[[ord("x"), MASK]]
        if down.byte_positions is not None:
            rows = rows + down.byte_positions.weight[0]
        found = pooled(encoder, b"x", bytes([MASK]), b"longer")
        torch.testing.assert_close(found[:2], down.value(rows), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("byte_positions", ["none", "learned"])
def test_the_order_of_bytes(byte_positions: str) -> None:
    """As written, the paper's pooling sees a bag of bytes; positions of bytes are an option."""
    encoder = encoder_of(downsampler={"byte_positions": byte_positions})
    listen, silent = pooled(encoder, b"\x02", b"listen"), pooled(encoder, b"\x02", b"silent")
    assert torch.equal(listen[0], silent[0])
    assert torch.allclose(listen[1], silent[1], atol=1e-5) == (byte_positions == "none")
    assert not torch.allclose(listen[1], pooled(encoder, b"\x02", b"listed")[1], atol=1e-3)


@pytest.mark.parametrize("byte_positions", ["none", "learned"])
def test_padding_of_bytes_changes_nothing(byte_positions: str) -> None:
    encoder = encoder_of(downsampler={"byte_positions": byte_positions})
    words = (b"\x02", b"a" * 128, b"b", "é".encode())
    torch.testing.assert_close(units(encoder, *words, size=700), units(encoder, *words), rtol=0, atol=1e-5)


def test_rows_of_different_words_have_no_nan() -> None:
    encoder = encoder_of().train()
    examples = [
        text(b"\x02", b"word", b"\x03", size=160),
        text(b"\x02" * 3, b"x" * 128, b"\x03" * 4, size=160),
    ]
    codepoints, mask, ends = (torch.cat(part) for part in zip(*examples, strict=True))
    mask[0] = False  # a row without any byte
    output = encoder(codepoints, mask, None, torch.zeros(2, 3, 2, dtype=torch.int64), ends)
    (output.characters.sum() + output.pooled.sum()).backward()
    assert all(tensor.isfinite().all() for tensor in output)
    assert all(
        parameter.grad.isfinite().all() for parameter in encoder.parameters() if parameter.grad is not None
    )


def test_a_word_knows_no_other_word() -> None:
    encoder = encoder_of()
    one, other = (
        units(encoder, b"\x02", b"word", b"here"),
        units(encoder, b"\x02", b"word", b"quite another", b"!"),
    )
    torch.testing.assert_close(one[:2], other[:2], rtol=0, atol=1e-6)


def test_a_word_at_two_places_differs_by_query_and_position_only() -> None:
    encoder = encoder_of()
    for of_places in (pooled, units):
        first, second = of_places(encoder, b"word", b"word")
        assert not torch.allclose(first, second, atol=1e-3)
    down: Any = encoder.downsampler
    with torch.no_grad():
        for table in (down.queries.weight, down.output.places.weight):
            table[1] = table[0]
    first, second = units(encoder, b"word", b"word")
    torch.testing.assert_close(first, second, rtol=0, atol=1e-6)

    shared = pooled(encoder_of(downsampler={"num_queries": 1}), b"word", b"word", b"other")
    torch.testing.assert_close(shared[0], shared[1], rtol=0, atol=1e-6)
    assert not torch.allclose(shared[0], shared[2], atol=1e-3)


def test_slots_add_their_vector() -> None:
    encoder = encoder_of()
    codepoints, mask, ends = text(b"\x02", b"one", b"two", b"three", b"\x03")
    targets = torch.tensor([[[unit, slot] for unit in range(5) for slot in range(16)]])
    output = encoder(codepoints, mask, None, targets, ends)
    h_UJD = output.characters.unflatten(1, (5, 16))[0]
    slots = encoder.upsampler.slots.weight
    for unit in range(5):
        torch.testing.assert_close(h_UJD[unit] - h_UJD[unit, :1], slots - slots[:1], rtol=0, atol=1e-5)
        torch.testing.assert_close(
            h_UJD[unit] - slots, output.units[0, unit].expand(16, -1), rtol=0, atol=1e-5
        )


def task_of(num_subwords: int) -> tuple[Encoder, Head]:
    """A small encoder and the head of the recipe."""
    return encoder_of(), base().objective.build(SMALL["width"], num_subwords)


def test_a_slot_learns_from_words_with_so_many_subwords_only() -> None:
    """Words of one, two and four subwords: gradients for the first four slots, each from the words that reach it."""
    encoder, head = task_of(50)
    codepoints, mask, ends = text(b"\x02", b"one", b"two", b"three", b"\x03")
    pairs = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (3, 3)]
    reached = []
    for unit in (1, 2, 3, None):
        some = [pair for pair in pairs if unit in (pair[0], None)]
        batch = {
            "codepoints": codepoints,
            "mask": mask,
            "unit_ends": ends,
            "target_positions": torch.tensor([some + [(0, 0)] * (7 - len(some))]),
            "target_ids": torch.arange(7)[None],
            "target_mask": torch.arange(7)[None] < len(some),
            "target_kinds": torch.zeros(1, 7, dtype=torch.int64),
        }
        (gradient,) = torch.autograd.grad(head(encoder, batch).total, [encoder.upsampler.slots.weight])
        reached.append((gradient != 0).any(dim=1).tolist())
    assert reached == [[slot < count for slot in range(16)] for count in (1, 2, 4, 4)]


def test_nothing_of_the_vocabulary_is_left_after_training() -> None:
    encoder, head = task_of(9973)
    assert [name for name, tensor in head.state_dict().items() if 9973 in tensor.shape] == [
        "output.weight",
        "output.bias",
    ]
    kept = {
        name: tensor for name, tensor in encoder.state_dict().items() if not name.startswith("upsampler.")
    }
    assert set(encoder.state_dict()) - set(kept) == {"upsampler.slots.weight"}
    assert max(max(tensor.shape) for tensor in kept.values()) == 256
