"""Whether workers train on GPUs."""

import pytest

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.ray.launch import uses_gpus


@pytest.mark.parametrize(
    ("device", "there", "least", "alone", "expected"),
    [
        ("auto", 8, 2, False, True),
        ("auto", 4, 2, False, True),  # of --workers 2:8: the run begins with what is there
        ("auto", 1, 2, False, False),
        ("auto", 0, 2, False, False),
        ("cuda", 0, 2, False, True),  # the cluster starts machines with GPUs when they are asked for
        ("cuda", 2, 2, True, True),
        ("cpu", 8, 2, False, False),
    ],
)
def test_it_hangs_on_what_is_asked_for_and_there(
    device: str, there: float, least: int, alone: bool, expected: bool
) -> None:
    assert uses_gpus(device, there, least, alone) is expected


def test_too_few_on_this_machine_alone_are_told() -> None:
    with pytest.raises(UserError, match=r"train\.device: cuda: Ray finds 1 GPUs on this machine for 2 workers"):
        uses_gpus("cuda", 1, 2, alone=True)
