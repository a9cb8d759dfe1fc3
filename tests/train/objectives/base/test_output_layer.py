"""The options of the output layer: a bias from frequencies, and rows shared by spelling."""

import numpy as np
import pytest
import torch

from tokenfree.train.objectives import masked_subwords
from tokenfree.train.objectives.base import NUM_FEATURES, SpelledLinear, shared_rows
from tokenfree.train.objectives.canine_s import Config

PIECES = ["<unk>", "<0x41>", "▁the", "▁The", "the", "▁then", "ing", "ring", "12", "▁!"]


def row(index_VF: torch.Tensor, piece: str) -> torch.Tensor:
    return index_VF[PIECES.index(piece)]


def test_subwords_share_rows_with_those_spelled_like_them() -> None:
    index_VF = shared_rows(PIECES, num_rows=100)
    assert index_VF.shape == (len(PIECES), NUM_FEATURES)
    assert not row(index_VF, "<unk>").any()
    assert not row(index_VF, "<0x41>").any(), "no byte is ever predicted"
    the, capital, joined, then = (row(index_VF, piece) for piece in ("▁the", "▁The", "the", "▁then"))
    assert the[7] == capital[7] == joined[7] > 0, "their lower-cased form"
    assert the[0] == capital[0] != joined[0], "their length and word start"
    assert the[1] == then[1] > 0, "their first letter"
    assert the[1] != row(index_VF, "ring")[1]
    assert the[5] == then[5] > 0, "their first three letters"
    assert row(index_VF, "ing")[6] == row(index_VF, "ring")[6] > 0, "their last three letters"


def test_kinds_of_characters() -> None:
    pairs = [("ab", "cd"), ("AB", "CD"), ("Ab", "Cd"), ("aB", "cD"), ("12", "34"), ("a1", "2b"), ("!", "?")]
    kinds = shared_rows([f"▁{text}" for pair in pairs for text in pair], num_rows=100)[:, 8].unflatten(
        0, (-1, 2)
    )
    assert (kinds[:, 0] == kinds[:, 1]).all()
    assert len(set(kinds[:, 0].tolist())) == len(pairs)


def test_only_as_many_features_as_there_are_rows() -> None:
    index_VF = shared_rows(PIECES, num_rows=4)
    assert set(index_VF.flatten().tolist()) == {0, 1, 2, 3}


def test_the_plain_matrix_gives_the_same_logits() -> None:
    layer = SpelledLinear(6, len(PIECES))
    layer.learn(PIECES)
    h_ND = torch.randn(5, 6)
    plain = torch.nn.functional.linear(h_ND, layer.weight(), layer.bias)
    torch.testing.assert_close(layer(h_ND), plain)
    expected_D = layer.free.weight[2] + sum(
        layer.shared.weight[number] for number in layer.index_VF[2] if number
    )
    torch.testing.assert_close(layer.weight()[2], expected_D)


def test_a_rare_subword_learns_from_those_spelled_like_it() -> None:
    layer = SpelledLinear(6, len(PIECES))
    layer.learn(PIECES)
    layer.weight()[PIECES.index("▁the")].sum().backward()
    gradient_RD = layer.shared.weight.grad
    assert gradient_RD is not None
    shared = row(layer.index_VF, "▁The")
    assert gradient_RD[shared[shared > 0]].any(dim=-1).any()
    assert not gradient_RD[0].any(), "the row of no feature stays zero"


def test_the_bias_begins_at_the_log_frequencies() -> None:
    head = Config(output_rows="spelled", output_bias="frequencies").build(4, len(PIECES))
    counts_V = np.arange(len(PIECES)) * 10
    head.learn(PIECES, counts_V)
    shares_V = torch.softmax(head.get_parameter("output.bias"), dim=0).detach().numpy()
    np.testing.assert_allclose(shares_V, (counts_V + 1) / (counts_V + 1).sum(), rtol=1e-5)


@pytest.mark.parametrize("kind", [Config, masked_subwords.Config])
def test_a_checkpoint_brings_its_shared_rows(kind: type[Config] | type[masked_subwords.Config]) -> None:
    config = kind(output_rows="spelled")
    trained, loaded = (config.build(4, len(PIECES)) for _ in range(2))
    trained.learn(PIECES, None)
    loaded.load_state_dict(trained.state_dict())
    assert isinstance(loaded.get_submodule("output"), SpelledLinear)
    h_ND = torch.randn(3, 4)
    plain, again = (head.get_submodule("output")(h_ND) for head in (trained, loaded))
    torch.testing.assert_close(again, plain)


def test_costs_of_spelled_rows_are_those_of_the_plain_matrix() -> None:
    plain, spelled = (Config(output_rows=rows).build(4, len(PIECES)) for rows in ("free", "spelled"))
    assert spelled.multiply_accumulates() == plain.multiply_accumulates() == 4 * 4 + 4 * len(PIECES)


def test_validation_masks_15_percent_whatever_is_trained() -> None:
    assert Config(mask_fraction=0.4).for_validation().mask_fraction == 0.15
    kept = Config(mask_fraction=0.4, validation_mask_fraction=None)
    assert kept.for_validation() is kept
