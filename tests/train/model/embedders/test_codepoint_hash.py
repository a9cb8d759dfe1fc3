"""Hash embeddings: buckets by hand-computed values, collisions of both families, n-grams."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.core.errors import UserError
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.embedders import codepoint_hash, ngram_hash
from tokenfree.train.model.embedders.characters import CharacterEmbedder
from tokenfree.train.model.embedders.codepoint_hash import Family, HashTables, hash_buckets, multipliers

DIMENSIONS = Dimensions(width=32, heads=4, inner_width=64, dropout=0.1, activation="gelu_tanh")


def official(codepoint: int, num_hashes: int = 8) -> list[int]:
    symbols = torch.tensor([codepoint])
    return hash_buckets(symbols, multipliers("official", num_hashes), 16384, "official").tolist()


def embedder(**options: Any) -> CharacterEmbedder:
    torch.manual_seed(0)
    return codepoint_hash.Config(**options).build(DIMENSIONS).eval()


@pytest.mark.parametrize(
    ("codepoint", "buckets"),
    [
        (ord("A"), [2046, 2838, 3894, 4026, 4818, 6402, 6798, 7458]),
        (ord("a"), [3038, 4214, 5782, 5978, 7154, 9506, 10094, 11074]),
        (0xE9, [7254, 10062, 13806, 14274, 698, 6314, 7718, 10058]),
        (0x4E2D, [14226, 8634, 1178, 8438, 2846, 8046, 13442, 590]),
        (0xE000, [8223, 8235, 8251, 8253, 8265, 8289, 8295, 8305]),
        (0, [31, 43, 59, 61, 73, 97, 103, 113, 137, 149, 157, 173, 181, 193, 211, 223]),
    ],
)
def test_official_buckets(codepoint: int, buckets: list[int]) -> None:
    assert official(codepoint, len(buckets)) == buckets


def test_independent_multipliers() -> None:
    """The first numbers of SplitMix64 from 0, as published; 41 bits of them, made odd."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert multipliers("independent", 4).tolist() == [number >> 23 | 1 for number in published]


def test_official_hash_collides_totally_and_the_independent_one_does_not() -> None:
    x = torch.tensor([[0x4E2D, 0xE000, 0xE003, 5]])
    y = torch.tensor([[0x0E2D, 0x2000, 0x2003, 5 + 3 * 16384]])
    table = embedder().table
    assert torch.equal(table(x), table(y))
    table = embedder(family="independent").table
    assert (table(x) != table(y)).any(dim=-1).all()


@pytest.mark.parametrize("num_buckets", [16384, 15000, 97])
def test_independent_collisions_are_as_rare_as_chance(num_buckets: int) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 0x110000, (200_000, 1), generator=generator)
    y = torch.where(torch.rand(x.shape, generator=generator) < 0.5, (x + 16384) % 0x110000, x ^ 1)
    hashes = [
        hash_buckets(symbols, multipliers("independent", 16), num_buckets, "independent")
        for symbols in (x, y)
    ]
    assert hashes[0].min() >= 0
    assert hashes[0].max() < num_buckets
    same = (hashes[0] == hashes[1]).double()
    expected = 1 / num_buckets
    assert ((same.mean(dim=0) - expected).abs() < 6 * (expected / len(x)) ** 0.5).all()
    both = (same[:, :1] * same[:, 1:]).mean()  # two hashes at once: the product, not the same pairs again
    assert abs(both - expected**2) < 6 * (expected**2 / (15 * len(x))) ** 0.5 + 1e-6


def test_ngram_buckets_are_nested_not_added() -> None:
    table = HashTables(ngram_hash.Config(hashes=1, buckets=15000), 4, orders=3)
    one, two, three = (
        buckets[0, :, 0].tolist() for buckets in table.ngram_buckets(torch.tensor([[97, 98, 99]]))
    )
    assert one == [98 * 31, 99 * 31, 100 * 31]
    assert two[0] == 98177 % 15000
    assert three[0] == 3077277 % 15000
    assert table.ngram_buckets(torch.tensor([[98, 97]]))[1][0, 0, 0] == 97247 % 15000
    after_end = (99 + 1 * 31 + 1) * 31  # "c" and nothing: H(99 + H(0))
    assert two[2] == after_end % 15000
    padded = table.ngram_buckets(torch.tensor([[97, 98, 99, 0, 0, 0]]))
    assert [buckets[0, :3, 0].tolist() for buckets in padded] == [one, two, three]


def slow_bucket(symbol: int, multiplier: int, family: Family) -> int:
    """The hash of the document in whole numbers of any size, not reduced."""
    product = (symbol + 1) * multiplier
    return product ^ product >> 29 if family == "independent" else product


@given(
    texts=st.lists(st.lists(st.integers(0, 0x10FFFF), min_size=6, max_size=6), min_size=1, max_size=3),
    orders=st.integers(1, 5),
    hashes=st.integers(1, 3),
    buckets=st.integers(1, 20000),
    family=st.sampled_from(["official", "independent"]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=25)
def test_ngrams_equal_loops(
    texts: list[list[int]], orders: int, hashes: int, buckets: int, family: Family, seed: int
) -> None:
    """Rows and gradients, where the official hash is reduced once at the end, as the document has it."""
    torch.manual_seed(seed)
    config = ngram_hash.Config(orders=orders, hashes=hashes, buckets=buckets, family=family)
    table = HashTables(config, 2 * hashes, config.orders).double()
    rows = table.rows.weight.view(orders, hashes, buckets, 2)
    numbers = multipliers(family, hashes).tolist()

    def bucket(gram: list[int], multiplier: int) -> int:
        inner = bucket(gram[1:], multiplier) if len(gram) > 1 else 0
        found = slow_bucket(gram[0] + inner, multiplier, family)
        return found if family == "official" else found % buckets

    of_texts = []
    for text in texts:
        padded = text + [0] * orders
        grams = [[padded[i : i + order + 1] for order in range(orders)] for i in range(len(text))]
        of_texts.append([
            [sum(rows[order, k, bucket(gram, p) % buckets] for order, gram in enumerate(of_place))
             for k, p in enumerate(numbers)] for of_place in grams
        ])  # fmt: skip
    slow = torch.stack([torch.stack([torch.cat(of_place) for of_place in of_text]) for of_text in of_texts])
    fast = table(torch.tensor(texts))
    by = torch.randn_like(slow)
    torch.testing.assert_close(fast, slow, atol=1e-12, rtol=0)
    one, other = (torch.autograd.grad((x * by).sum(), table.rows.weight)[0] for x in (fast, slow))
    torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_ngram_embedding_sums_the_orders() -> None:
    table = HashTables(ngram_hash.Config(hashes=2, buckets=7), 6, orders=3)
    codepoints = torch.tensor([[5, 99, 0x4E2D, 17]])
    rows = table.rows.weight.view(3, 2, 7, 3)
    buckets = table.ngram_buckets(codepoints)
    for i in range(4):
        halves = [
            torch.stack([rows[j, k, buckets[j][0, i, k]] for j in range(3)]).sum(dim=0) for k in range(2)
        ]
        wanted = torch.cat(halves)
        torch.testing.assert_close(table(codepoints)[0, i], wanted)


@pytest.mark.parametrize("config", [codepoint_hash.Config(hashes=4), ngram_hash.Config(hashes=4)])
@pytest.mark.parametrize("bad", [-1, 0x110000])
def test_no_unknown_character_but_an_error(config: Any, bad: int) -> None:
    with pytest.raises(IndexError):
        config.build(DIMENSIONS)(torch.tensor([[65, bad]]))


def test_segments_and_positions_are_added() -> None:
    model = embedder(max_characters=8)
    x = torch.tensor([[65, 65, 65]])
    plain = model(x)
    assert not torch.allclose(plain[0, 0], plain[0, 1])
    assert torch.equal(model(x, torch.zeros_like(x)), plain)
    assert not torch.allclose(model(x, torch.ones_like(x)), plain)
    moved = model(x, None, torch.tensor([[2, 1, 0]]))
    torch.testing.assert_close(moved, plain.flip(1))


def test_too_many_characters() -> None:
    with pytest.raises(UserError, match=r"9 characters are more than model\.embedder\.max_characters, 8"):
        embedder(max_characters=8)(torch.zeros(1, 9, dtype=torch.int64))


def test_dropout_comes_last() -> None:
    torch.manual_seed(0)
    model = embedder().train()
    assert (model(torch.arange(100)[None]) == 0).float().mean() == pytest.approx(0.1, abs=0.03)
