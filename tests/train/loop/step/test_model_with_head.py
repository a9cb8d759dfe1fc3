import pytest
import torch

from tokenfree.train.loop.step import StepSums
from tokenfree.train.objectives.base import Loss

MEANS = ("sentences", "words")


def loss(total: float) -> Loss:
    count = torch.tensor(4)
    means = {
        "words": (torch.tensor(3.0), torch.tensor(2)),
        "sentences": (torch.tensor(5.0), torch.tensor(10)),
    }
    return Loss(torch.tensor(total, requires_grad=True) * 1.0, count, torch.tensor(1), means)


def test_a_vector_and_back() -> None:
    sums = StepSums.of(loss(8.0), MEANS)._replace(num_characters=torch.tensor(70.0, dtype=torch.float64))
    assert sums.pack().tolist() == [8, 4, 1, 5, 10, 3, 2, 70, 0]
    assert sums.pack().dtype == torch.float64
    assert not sums.pack().requires_grad
    again = StepSums.unpack(sums.pack(), MEANS)
    assert again.pack().tolist() == sums.pack().tolist()
    assert {name: pair.tolist() for name, pair in again.means.items()} == {
        "sentences": [5, 10],
        "words": [3, 2],
    }
    assert (again.loss.item(), again.num_characters.item(), again.num_stops.item()) == (8, 70, 0)


def test_a_head_without_further_means() -> None:
    bare = StepSums.of(loss(8.0), ())
    assert bare.pack().tolist() == [8, 4, 1, 0, 0]
    assert StepSums.unpack(bare.pack(), ()).plus(bare).pack().tolist() == [16, 8, 2, 0, 0]


def test_what_is_reported() -> None:
    sums = StepSums.zeros(MEANS, torch.device("cpu")).plus(StepSums.of(loss(8.0), MEANS))
    sums = sums.plus(StepSums.of(loss(2.0), MEANS))
    assert sums.mean_loss() == 10 / 8
    assert sums.report() == {
        "loss": 10 / 8,
        "num_targets": 8,
        "accuracy": 0.25,
        "sentences": 0.5,
        "words": 1.5,
    }
    assert list(sums.report()) == ["loss", "num_targets", "accuracy", "sentences", "words"]
    nothing = StepSums.zeros(MEANS, torch.device("cpu")).report()
    assert nothing == {"loss": 0, "num_targets": 0, "accuracy": 0, "sentences": 0, "words": 0}


def test_a_mean_that_the_head_does_not_give_is_an_error() -> None:
    with pytest.raises(KeyError, match="lines"):
        StepSums.of(loss(1.0), ("lines",))
