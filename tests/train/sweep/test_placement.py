"""Where trials fit: the sums."""

import pytest

from tokenfree.core.errors import UserError
from tokenfree.train.sweep.planning import Needs, Node, place


def test_trials_side_by_side() -> None:
    assert place(Needs(1, 1), [Node(2)]).concurrent == 2
    assert place(Needs(2, 1), [Node(2)]).concurrent == 1
    assert place(Needs(2, 2), [Node(3), Node(3), Node(4)]).concurrent == 2  # 1 + 1 + 2 workers
    assert place(Needs(1, 1, 0.25), [Node(16, 1)]).concurrent == 4
    assert place(Needs(1, 1), [Node(8)], concurrent=3).concurrent == 3
    assert place(Needs(1, 1), [Node(2)], concurrent=9).concurrent == 2  # more than have room are not begun


def test_a_trial_that_can_never_fit_is_refused_with_the_sum() -> None:
    with pytest.raises(UserError, match=r"a trial needs 4 CPUs; the largest machine of the cluster has 2 CPUs"):
        place(Needs(1, 4), [Node(2), Node(1)])
    with pytest.raises(UserError, match=r"needs 3 CPUs \(3 workers of 1\).* has 1 CPU, and all 2 .* for 2 workers"):
        place(Needs(3, 1), [Node(1), Node(1)])
    with pytest.raises(UserError, match=r"1 CPU and 1 GPU; .* has 8 CPUs and 0 GPUs"):
        place(Needs(1, 1, 1), [Node(8)])


def test_the_sum_is_shown() -> None:
    assert str(place(Needs(1, 1), [Node(2)])) == "a trial needs 1 CPU; this machine has 2 CPUs: 2 trials side by side"
