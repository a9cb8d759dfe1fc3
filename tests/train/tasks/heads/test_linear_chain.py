"""The CRF against the sums and maxima over all paths."""

import itertools

import pytest
import torch

from tokenfree.train.tasks.heads import LinearChain

SIZES = (4, 1, 3, 0)  # places of each sentence
NUM_TAGS = 3


@pytest.fixture
def chain() -> LinearChain:
    torch.manual_seed(0)
    chain = LinearChain(NUM_TAGS).double()
    for parameter in chain.parameters():
        torch.nn.init.normal_(parameter)
    return chain


@pytest.fixture
def scores_BPK() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(len(SIZES), max(SIZES), NUM_TAGS, dtype=torch.float64)


MASK_BP = torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None]


def paths(chain: LinearChain, scores_PK: torch.Tensor) -> dict[tuple[int, ...], torch.Tensor]:
    """The score of each path through the places of one sentence."""
    return {
        tags: sum(scores_PK[place, tag] for place, tag in enumerate(tags))
        + chain.first_K[tags[0]]
        + chain.last_K[tags[-1]]
        + sum(chain.pairs_KK[pair] for pair in itertools.pairwise(tags))
        for tags in itertools.product(range(NUM_TAGS), repeat=len(scores_PK))
    }


def test_log_partition_sums_over_all_paths(chain: LinearChain, scores_BPK: torch.Tensor) -> None:
    of_batch = chain.log_partition(scores_BPK, MASK_BP)
    for row, size in enumerate(SIZES):
        expected = torch.zeros(()).double()
        if size:
            expected = torch.stack(list(paths(chain, scores_BPK[row, :size]).values())).logsumexp(0)
        torch.testing.assert_close(of_batch[row], expected)


def test_loss_is_minus_log_probability_of_the_paths(chain: LinearChain, scores_BPK: torch.Tensor) -> None:
    tags_BP = torch.tensor([[2, 0, 1, 1], [1, 0, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]])
    expected = torch.zeros(()).double()
    for row, size in enumerate(SIZES):
        if size:
            scores = paths(chain, scores_BPK[row, :size])
            expected += (
                torch.stack(list(scores.values())).logsumexp(0) - scores[tuple(tags_BP[row, :size].tolist())]
            )
    torch.testing.assert_close(chain.loss(scores_BPK, tags_BP, MASK_BP), expected)


def test_best_finds_the_path_with_the_highest_score(chain: LinearChain, scores_BPK: torch.Tensor) -> None:
    best_BP = chain.best(scores_BPK, MASK_BP)
    for row, size in enumerate(SIZES):
        if size:
            scores = paths(chain, scores_BPK[row, :size])
            assert tuple(best_BP[row, :size].tolist()) == max(scores, key=lambda tags: scores[tags])
        assert not best_BP[row, size:].any()


def test_marginals_are_the_shares_of_paths_with_each_tag(
    chain: LinearChain, scores_BPK: torch.Tensor
) -> None:
    marginals_BPK = chain.marginals(scores_BPK, MASK_BP)
    for row, size in enumerate(SIZES):
        expected = torch.zeros(max(SIZES), NUM_TAGS, dtype=torch.float64)
        if size:
            scores = paths(chain, scores_BPK[row, :size])
            total = torch.stack(list(scores.values())).logsumexp(0)
            for tags, score in scores.items():
                expected[torch.arange(size), torch.tensor(tags)] += (score - total).exp().detach()
        torch.testing.assert_close(marginals_BPK[row], expected)
