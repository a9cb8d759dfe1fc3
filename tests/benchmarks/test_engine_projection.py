"""What the benchmark of engines makes of the times of one worker."""

import pytest

from benchmarks.preprocess.engines import GROWING, REMEDIES, Times, project, reckon

COMMITTED = {
    "attempt.json": 101.0,
    "runs/b-0.json": 107.0,
    "runs/a-0.json": 103.0,
    "vocabulary.json": 117.0,
    "plan.json": 118.0,
    "shards/train/0.json": 121.0,
    "shards/validation/0.json": 122.0,
}
SERIAL = {"start": 1.0, "vocabulary": 10.0, "plan and merge": 1.0, "finish": 2.0}
TIMES = Times(splits=(2.0, 4.0), shards=(3.0, 1.0), serial=SERIAL)
# Start and plan take as long.
SMALLER = Times(splits=(1.0,), shards=(0.5,), serial={**SERIAL, "finish": 0.25})


def test_parts_are_told_by_when_files_are_committed() -> None:
    assert reckon(COMMITTED, began=100.0, ended=124.0) == TIMES


@pytest.mark.parametrize(
    ("workers", "growth", "seconds", "longest"),
    [
        (1, 1, 14 + 6 + 4, "vocabulary"),  # all of it
        (2, 1, 14 + 4 + 3, "vocabulary"),  # no faster than the largest split and shard
        (64, 1, 14 + 4 + 3, "vocabulary"),
        (2, 10, 12 + 2 * 10 + 30 + 20, "finish"),
        (1, 2, 12 + 2 * 2 + 12 + 8, "vocabulary"),
    ],
)
def test_workers_share_splits_and_shards_alone(
    workers: int, growth: float, seconds: float, longest: str
) -> None:
    assert project(TIMES, workers, growth, SMALLER) == (seconds, longest)


def test_each_part_has_a_remedy() -> None:
    assert set(REMEDIES) == {*TIMES.serial, "largest split", "largest shard"} > set(GROWING)
