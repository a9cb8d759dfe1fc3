"""How several data directories are named."""

from pathlib import Path

import pytest

from tokenfree.core.errors import UserError
from tokenfree.train.data.mixture import Mixture, parse


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a"], "a"),
        (["a:0.5"], "a"),  # of a single one the weight says nothing
        (["a:0.7", "b:.3"], Mixture(("a", "b"), (0.7, 0.3))),
        (["a", "b"], Mixture(("a", "b"))),
        (["s3://bucket/x:0.3", "gs://y:7"], None),
        (["s3://bucket/x:0.3", "gs://y/z:7"], Mixture(("s3://bucket/x", "gs://y/z"), (0.3, 7.0))),
        (["hdfs://host:9000/x:2", "hdfs://host:9000"], None),
        (["hdfs://host:9000/x", "hdfs://host:9000"], Mixture(("hdfs://host:9000/x", "hdfs://host:9000"))),
        (["C:", "d"], Mixture(("C:", "d"))),
        (["C:\\data:1e-3", "a:b:2"], Mixture(("C:\\data", "a:b"), (0.001, 2.0))),
        (["a:", "a:x"], Mixture(("a:", "a:x"))),
        ([":5", "b"], Mixture((":5", "b"))),
    ],
)
def test_a_number_after_the_last_colon_is_a_weight(words: list[str], expected: str | Mixture | None) -> None:
    if expected is None:
        with pytest.raises(UserError, match="has no weight; give all"):
            parse(words)
        return
    assert parse(words) == expected


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "0.0", "1e999"])
def test_a_weight_that_is_not_above_0_is_refused(weight: str) -> None:
    with pytest.raises(
        UserError, match=rf"^--data b:{weight}: the weight must be a number above 0, such as b:0.5"
    ):
        parse(["a:1", f"b:{weight}"])


@pytest.mark.parametrize("weight", ["1e-320", "5e-324", "1e-308", "1e-20", "1e-5"])
def test_a_weight_of_less_than_one_sample_is_refused(weight: str) -> None:
    with pytest.raises(
        UserError, match=rf"^--data b:{weight}: the weight gives less than one sample in 65,536\."
    ):
        parse(["a:1", f"b:{weight}"])
    with pytest.raises(UserError, match=r"^--data a:1: the weight gives less than one sample in 65,536\."):
        parse(["a:1", "b:1.7e308"])
    assert parse([f"a:{weight}", f"b:{weight}"]) == Mixture(("a", "b"), (float(weight),) * 2)
    assert parse(["a:1.7e308", "b:1.7e308"]) == Mixture(("a", "b"), (1.7e308,) * 2)


def test_weights_of_some_alone_are_refused() -> None:
    with pytest.raises(UserError, match=r"^--data b: has no weight; .* such as b:0.5"):
        parse(["a:0.7", "b"])


def test_a_folder_of_the_very_name_is_meant(tmp_path: Path) -> None:
    (tmp_path / "x:1").mkdir()
    assert parse([f"{tmp_path}/x:1", "b"]) == Mixture((f"{tmp_path}/x:1", "b"))
    assert parse([f"{tmp_path}/x:1:2", "b:1"]) == Mixture((f"{tmp_path}/x:1", "b"), (2.0, 1.0))
