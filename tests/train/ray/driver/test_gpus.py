"""Whether workers train on GPUs."""

import pytest

from tokenfree.train.ray.driver import uses_gpus


@pytest.mark.parametrize(
    ("device", "there", "expected"),
    [
        ("auto", 8, True),
        ("auto", 2, True),  # of --workers 2:8: the run begins with what is there
        ("auto", 1, False),
        ("auto", 0, False),
        ("cuda", 0, True),  # the cluster starts machines with GPUs when they are asked for
        ("cpu", 8, False),
    ],
)
def test_it_hangs_on_what_is_asked_for_and_there(device: str, there: float, expected: bool) -> None:
    assert uses_gpus(device, there, min_workers=2) is expected
