"""Masked words and their characters one by one: what is drawn, and that no prediction knows its own character."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokenfree.core.settings import build
from tokenfree.preprocess.text.specials import CLS, MASK, SEP
from tokenfree.train.batches.base import Arrays, Collator, words
from tokenfree.train.model.encoder import Encoder, ModelConfig
from tokenfree.train.objectives.canine_c import CanineC, Config

LENGTH = 256
Row = dict[str, np.ndarray]


def row_of(text: str) -> Row:
    return {
        "codepoints": np.array([ord(c) for c in text], np.int32),
        "whitespace": np.array([c.isspace() for c in text], np.bool_),
    }


def random_text(number: int, num_words: int) -> str:
    rng = np.random.default_rng(number)
    sizes = rng.integers(1, 7, num_words)
    return " ".join("".join(map(chr, rng.integers(0x61, 0x7B, size))) for size in sizes)


def make_collator(length: int = LENGTH, seed: int = 0, **config: Any) -> Collator:
    return Config(**config).collator(None, length, seed)


def collate(collator: Collator, texts: list[str], ids: list[int] | None = None) -> Arrays:
    rows = [row_of(text) for text in texts]
    columns = {column: [row[column] for row in rows] for column in collator.columns}
    return collator(columns, np.arange(len(texts)) if ids is None else np.array(ids))


TEXTS = [random_text(number, 40) for number in range(100)]


@pytest.fixture(scope="module")
def batch() -> Arrays:
    return collate(make_collator(), TEXTS)


def test_targets_are_all_characters_of_some_words_with_their_gold(batch: Arrays) -> None:
    for row, text in enumerate(TEXTS):
        real = batch["target_mask"][row]
        positions = batch["target_positions"][row][real]
        assert len(set(positions.tolist())) == len(positions) > 0
        assert [chr(c) for c in batch["target_codepoints"][row][real]] == [text[at - 1] for at in positions]
        predicted = np.zeros(len(text) + 2, dtype=bool)
        predicted[positions] = True
        spans = [(1 + match.start(), 1 + match.end()) for match in re.finditer(r"\S+", text)]
        chosen = [span for span in spans if predicted[span[0]]]
        assert len(chosen) == 6  # 15% of 40
        assert all(predicted[first:last].all() for first, last in chosen)
        assert predicted.sum() == sum(last - first for first, last in chosen)
        for name in ("target_positions", "target_codepoints", "target_ids"):
            assert (batch[name][row][~real] == 0).all()
        assert batch["num_characters"][row] == len(text)


@pytest.mark.parametrize(("config", "share"), [({}, 1.0), ({"masked": 0.9}, 0.9), ({"masked": 0.4}, 0.4)])
def test_inputs_change_in_a_share_of_the_words_and_nowhere_else(config: dict[str, Any], share: float) -> None:
    batch = collate(make_collator(**config), TEXTS * 10)
    masked = kept = 0
    for row, text in enumerate(TEXTS * 10):
        line, predicted = batch["codepoints"][row], np.zeros(LENGTH, dtype=bool)
        predicted[batch["target_positions"][row][batch["target_mask"][row]]] = True
        assert (line[0], line[len(text) + 1]) == (CLS, SEP)
        before = np.array([0, *map(ord, text)])
        at = 1
        for word in text.split():
            now, was = line[at : at + len(word)], before[at : at + len(word)]
            if predicted[at]:
                masked += bool((now == MASK).all())
                kept += bool((now == was).all())
                assert (now == MASK).all() or (now == was).all()
            else:
                assert (now == was).all()
            at += len(word) + 1
    assert masked / (masked + kept) == pytest.approx(share, abs=0.02 * (share < 1))


def test_no_more_characters_than_allowed_and_none_of_a_word_left_out() -> None:
    batch = collate(make_collator(max_predictions=20, mask_fraction=1.0), TEXTS)
    counts = batch["target_mask"].sum(axis=1)
    assert counts.max() <= 20
    assert counts.min() > 20 - 6  # the next word would not have fitted
    # Two words for us, of 5 and 4 characters.
    longer = collate(make_collator(max_predictions=5), ["wonderful"] * 50)
    assert set(longer["target_mask"].sum(axis=1).tolist()) == {4, 5}
    assert collate(make_collator(), ["a", "  "])["target_mask"].sum(axis=1).tolist() == [1, 0]


def test_text_without_spaces_is_not_masked_whole() -> None:
    """Runs of more than `max_word` characters are cut: else 15% of one word would be all of it."""
    batch = collate(make_collator(), ["字" * 240] * 50)
    assert set(batch["target_mask"].sum(axis=1).tolist()) <= {32, 16}
    whole = collate(make_collator(max_word=1000), ["字" * 240] * 50)
    assert (whole["target_mask"].sum(axis=1) == 240).all()
    starts = np.where(batch["target_mask"], batch["target_positions"], LENGTH).min(axis=1)
    assert set(starts.tolist()) == {1 + 32 * number for number in range(8)}


def test_targets_are_codepoints_modulo_the_buckets() -> None:
    """Check 11: t('A') = 65 = t(U+4041) with 16,384 buckets; targets are the gold ones whatever the input shows."""
    batch = collate(make_collator(mask_fraction=1.0), ["A \u4041"] * 20)
    real = batch["target_mask"]
    assert (batch["target_ids"][real] == 65).all()
    assert set(batch["target_codepoints"][real].tolist()) == {65, 0x4041}
    assert (batch["codepoints"][:, 1] == MASK).any()


def test_the_order_is_drawn_anew_for_each_sample(batch: Arrays) -> None:
    """Check 15: a fresh permutation for each example, the same one again for the same seed and sample."""
    text = TEXTS[0]
    many = collate(make_collator(mask_fraction=1.0, max_predictions=320), [text] * 300)
    orders = many["target_positions"][:, : int(many["target_mask"][0].sum())]
    assert (np.sort(orders, axis=1) == np.sort(orders[0])).all()
    assert len({order.tobytes() for order in orders}) == 300
    first = orders[:, 0]
    assert np.abs(np.mean(first) / np.mean(orders[0]) - 1) < 0.1  # any character may be first
    some = [7, 90, 3]
    again = collate(make_collator(), [TEXTS[i] for i in some], ids=some)
    for name, array in batch.items():
        np.testing.assert_array_equal(again[name], array[some])
    assert not np.array_equal(
        collate(make_collator(seed=1), TEXTS)["target_positions"], batch["target_positions"]
    )


def test_long_windows_are_cropped_between_words() -> None:
    batch = collate(make_collator(64), [random_text(5, 100)] * 100)
    assert batch["num_characters"].max() <= 56
    assert batch["num_characters"].min() > 40
    assert (batch["target_positions"].max(axis=1) <= batch["num_characters"]).all()
    assert (batch["target_mask"].sum(axis=1) > 0).all()


@given(st.lists(st.text(alphabet="ab \n", max_size=30), min_size=1, max_size=5), st.integers(1, 6))
def test_words_are_what_split_gives(texts: list[str], longest: int) -> None:
    counts, starts, ends = words([row_of(text)["whitespace"] for text in texts], longest)
    found = np.split(np.stack([starts, ends], axis=1), np.cumsum(counts)[:-1])
    for text, spans in zip(texts, found, strict=True):
        parts = [text[start:end] for start, end in spans]
        assert parts == [w[at : at + longest] for w in text.split() for at in range(0, len(w), longest)]


MODEL: dict[str, Any] = {
    "width": 16,
    "embedder": {"name": "codepoint_hash", "buckets": 512, "max_characters": 256},
    "trunk": {"layers": 1, "heads": 2, "dropout": 0.0},
}


@pytest.fixture(scope="module")
def model() -> tuple[Encoder, CanineC]:
    torch.manual_seed(0)
    encoder = build(ModelConfig, MODEL, source="test").build()
    head = Config(heads=2, buckets=512, dropout=0.0).build(16, 0)
    for parameter in head.parameters():  # as large as after some training, so that what is seen shows
        torch.nn.init.normal_(parameter, std=0.3)
    return encoder.double(), head.double()


def tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def logits_of(model: tuple[Encoder, CanineC], batch: dict[str, torch.Tensor]) -> torch.Tensor:
    encoder, head = model
    vectors = encoder(batch["codepoints"], batch["mask"], targets_BP=batch["target_positions"]).characters
    return head.output(head.predict(encoder, vectors, batch))


def test_no_prediction_knows_its_own_character(model: tuple[Encoder, CanineC]) -> None:
    """Check 10: another gold character at step s leaves the logits of steps <= s exactly, and changes those after."""
    batch = tensors(collate(make_collator(buckets=512, max_predictions=24), TEXTS[:3]))
    logits = logits_of(model, batch)
    steps = int(batch["target_mask"].sum(dim=1).min())
    for step in range(steps):
        gold = batch["target_codepoints"].clone()
        gold[:, step] = 0x4E2D
        changed = logits_of(model, {**batch, "target_codepoints": gold})
        assert torch.equal(changed[:, : step + 1], logits[:, : step + 1])
        if step + 1 < steps:
            assert ((changed - logits)[:, step + 1 : steps].abs().amax(dim=-1) > 1e-9).all()


def test_one_prediction_has_only_one_order(model: tuple[Encoder, CanineC]) -> None:
    """Check 10, with P = 1: the encoder's vector and BOS are all there is."""
    batches = [
        tensors(collate(make_collator(max_predictions=1), ["a"], ids=[number])) for number in range(50)
    ]
    masked = [batch for batch in batches if batch["codepoints"][0, 1] == MASK]
    assert len(masked) > 30
    expected = logits_of(model, masked[0])
    for batch in masked[1:]:
        assert torch.equal(logits_of(model, batch), expected)


@pytest.mark.parametrize("with_segments", [False, True])
def test_each_prediction_is_made_of_its_own_vector_and_of_the_character_before(
    model: tuple[Encoder, CanineC], with_segments: bool
) -> None:
    """Row by row: [e_g(pi_{s-1}); y_seq(pi_s)], where e_g has the position and the segment of its own character."""
    encoder, head = model
    batch = tensors(collate(make_collator(buckets=512, max_predictions=12), TEXTS[:3]))
    if with_segments:
        batch["segments"] = (torch.arange(LENGTH) > 60).long().expand(3, -1)
    place, gold = batch["target_positions"], batch["target_codepoints"]
    assert not with_segments or batch["segments"].gather(1, place).float().mean(dim=1).median() not in (0, 1)
    y_BCD = encoder(batch["codepoints"], batch["mask"], batch.get("segments")).characters
    found = head.predict(encoder, y_BCD.gather(1, place[..., None].expand(-1, -1, 16)), batch)
    for row in range(3):
        joined = []
        for step in range(12):
            character, at, segment = 0xE002, 0, 0  # BOS
            if step:
                character, at = int(gold[row, step - 1]), int(place[row, step - 1])
                segment = int(batch["segments"][row, at]) if with_segments else 0
            embedder = encoder.embedder
            summed = embedder.table(torch.tensor([[character]]))[0, 0]
            summed = summed + embedder.segments.weight[segment] + embedder.positions.weight[at]
            joined.append(torch.cat([embedder.norm(summed), y_BCD[row, int(place[row, step])]]))
        x_PD = head.norm(torch.nn.functional.gelu(head.dense(torch.stack(joined)), approximate="tanh"))
        expected = head.layer(x_PD[None], batch["target_mask"][row : row + 1])[0]
        torch.testing.assert_close(found[row], expected)


def test_padded_rows_change_nothing(model: tuple[Encoder, CanineC]) -> None:
    batch = tensors(collate(make_collator(buckets=512), TEXTS[:3]))
    shorter = {
        name: values[:, :48] if name.startswith("target_") else values for name, values in batch.items()
    }
    real = shorter["target_mask"]
    assert real.sum() == batch["target_mask"].sum()
    assert real.sum(dim=1).max() < 48
    torch.testing.assert_close(logits_of(model, batch)[:, :48][real], logits_of(model, shorter)[real])
    filled = {**batch, "target_codepoints": batch["target_codepoints"].masked_fill(~batch["target_mask"], 77)}
    torch.testing.assert_close(logits_of(model, filled)[:, :48][real], logits_of(model, shorter)[real])


def test_the_loss_is_that_of_the_formula_on_any_device(
    model: tuple[Encoder, CanineC], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, head = model
    batch = tensors(collate(make_collator(buckets=512), TEXTS[:4]))
    loss = head(encoder, batch)
    log_p = logits_of(model, batch).log_softmax(-1)
    gold = log_p.gather(2, batch["target_ids"][..., None])[..., 0]
    assert loss.total.item() == pytest.approx(-gold[batch["target_mask"]].sum().item(), rel=1e-5)
    nats, count = loss.means["bits_per_character"]
    assert (nats / count).item() == pytest.approx(loss.total.item() / loss.num_targets.item() / np.log(2))
    assert head.means == tuple(loss.means)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # the path of fixed shapes
    fixed = head(encoder, batch)
    assert fixed.total.item() == pytest.approx(loss.total.item(), rel=1e-5)
    assert fixed[1:3] == loss[1:3]


def test_without_targets_the_loss_is_zero_and_can_be_differentiated(model: tuple[Encoder, CanineC]) -> None:
    loss = model[1](model[0], tensors(collate(make_collator(buckets=512), [" "])))
    assert (loss.total.item(), loss.num_targets.item()) == (0, 0)
    loss.total.backward()


def test_mistakes_are_named() -> None:
    wide = build(ModelConfig, {**MODEL, "character_width": 8}, source="test")
    mistakes = Config(heads=3).check(wide, None)
    assert [mistake.split(":")[0] for mistake in mistakes] == ["objective.heads", "model.character_width"]
    assert Config(heads=4).check(build(ModelConfig, MODEL, source="test"), None) == []
