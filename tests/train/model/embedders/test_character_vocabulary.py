"""Embedders that are tables: characters of a corpus, subwords, bytes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tokenfree import load_encoder
from tokenfree.core.settings import build
from tokenfree.preprocess.text.specials import RESERVED
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.data.validation import frequent_characters
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.costs import costs
from tokenfree.train.model.embedders import byte_table, subword_table
from tokenfree.train.model.embedders.character_vocabulary import VocabularyTable
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.pretrain import pretrain

MakeRecipe = Callable[..., PretrainRecipe]
DIMENSIONS = Dimensions(width=8, heads=2, inner_width=16, dropout=0.0, activation="gelu_tanh")


def rows_of(table: VocabularyTable, text: str) -> list[int]:
    """The row of each character."""
    vectors = table(torch.tensor([[ord(character) for character in text]]))[0]
    return [(table.rows.weight == vector).all(dim=1).nonzero().item() for vector in vectors]


def table_of(size: int, characters: str) -> VocabularyTable:
    torch.manual_seed(0)
    table = VocabularyTable(size, 8)
    table.learn(np.array([ord(character) for character in characters]))
    return table


def test_the_most_frequent_characters_have_rows() -> None:
    table = table_of(len(RESERVED) + 4, "etaoin")
    rows = rows_of(table, "eta")
    assert len(set(rows)) == 3
    assert 0 not in rows
    assert rows_of(table, "oinZ\U0010ffff日") == [0] * 6


def test_a_table_begins_with_ascii() -> None:
    known = VocabularyTable(500, 8).known_V.tolist()
    assert set(range(128)) <= set(known)
    assert 128 not in known


def test_special_characters_always_have_rows() -> None:
    rows = rows_of(table_of(len(RESERVED) + 2, "e\ue000\x00t"), "e\x00\ue000\ue001\ue003\ue005\ue032")
    assert len(set(rows)) == 7
    assert 0 not in rows


def test_fewer_characters_than_rows() -> None:
    table = table_of(500, "ab")
    assert len(set(rows_of(table, "ab"))) == 2
    assert rows_of(table, "c\U0010ffff") == [0, 0]
    assert (table(torch.tensor([[0x110000, -1]])) == table.rows.weight[0]).all()


def test_the_graph_for_export_finds_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(500, "ab\U0010ffff")
    codepoints = torch.tensor([[-1, 0, ord("a"), ord("c"), 0xE000, 0x10FFFE, 0x10FFFF, 0x110000, 0x110001]])
    expected = table(codepoints)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert torch.equal(table(codepoints), expected)


def test_frequent_characters_of_a_corpus(corpus: str) -> None:
    split = ShardReader(corpus, "train")
    _, shards, rows = split.spread(10**6)
    text = np.concatenate(split.rows(("codepoints",), shards, rows)["codepoints"])
    found, counts = np.unique(text, return_counts=True)
    wanted = sorted(zip((-counts).tolist(), found.tolist(), strict=True))
    assert frequent_characters(split).tolist() == [codepoint for _, codepoint in wanted]


def test_a_run_keeps_the_characters_of_its_corpus(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Any
) -> None:
    embedder = {"name": "character_vocabulary", "size": len(RESERVED) + 11, "max_characters": 64}
    pretrain(make_recipe(model={"embedder": embedder}, steps=2), corpus, str(tmp_path / "run"))
    table = load_encoder(tmp_path / "run").encoder.embedder.table
    wanted = [*RESERVED, *frequent_characters(ShardReader(corpus, "train"))[:10].tolist()]
    assert table.known_V.tolist() == sorted(wanted)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]


def test_costs() -> None:
    for embedder, parameters in (
        ("character_vocabulary", 8192 * 768),
        ("subword_table", 30522 * 768),
        ("byte_table", 256 * 768),
    ):
        assert (
            costs(build(ModelConfig, {"embedder": embedder}, source="test"), 512)[0].parameters == parameters
        )


@pytest.mark.parametrize(
    ("config", "size"), [(subword_table.Config(size=50), 50), (byte_table.Config(), 256)]
)
def test_rows_segments_and_positions_are_added(config: Any, size: int) -> None:
    torch.manual_seed(0)
    embedder = config.build(DIMENSIONS).eval()
    ids, segments = torch.tensor([[3, size - 1, 3]]), torch.tensor([[0, 1, 1]])
    summed = (
        embedder.table.rows.weight[ids[0]]
        + embedder.segments.weight[segments[0]]
        + embedder.positions.weight[torch.arange(3)]
    )
    torch.testing.assert_close(embedder(ids, segments)[0], embedder.norm(summed))
    for wrong in (size, -1):
        with pytest.raises(IndexError):
            embedder(torch.tensor([[wrong]]))
