"""Keys of a recipe among a command's arguments: they are no positionals, and names are spelled with `-` or `_`."""

import pytest

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes.kinds import PREPROCESSING, PRETRAINING
from tokenfree.workflows.recipes.options import split_arguments

OPTIONS = ["--help", "--output", "--dry-run", "--init-from"]


def test_keys_are_no_positionals() -> None:
    arguments = ["mine", "--shards", "4", "--output", "x", "--window.pack=none", "books"]
    own, overrides = split_arguments("preprocess", arguments, OPTIONS, PREPROCESSING)
    assert own == ["mine", "--output", "x", "books"]
    assert overrides == [("shards", "4"), ("window.pack", "none")]


@pytest.mark.parametrize("spelled", ["learning-rate", "learning_rate"])
def test_both_spellings_of_names_are_taken_and_values_left_alone(spelled: str) -> None:
    arguments = [f"--train.{spelled}=1e-3", "--dry_run", "--init-from", "my-run_2", "--output=a-b_c"]
    own, overrides = split_arguments("pretrain", arguments, OPTIONS, PRETRAINING)
    assert own == ["--dry-run", "--init-from", "my-run_2", "--output=a-b_c"]
    assert overrides == [("train.learning_rate", "1e-3")]


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--outptu", "--output"),
        ("--dryrun", "--dry-run"),
        ("--learning-rate", "--train.learning_rate"),
        ("--modle.width", "--model.width"),
        ("--modle.trunk.layers", "--model.trunk.layers"),
        ("--buckets=3", "--model.embedder.buckets"),
    ],
)
def test_unknown_options_are_told_with_the_nearest(option: str, hint: str) -> None:
    with pytest.raises(UserError, match=rf"unknown option {option.split('=')[0]} \(did you mean {hint}\?\)"):
        split_arguments("pretrain", [option, "1"], OPTIONS, PRETRAINING)


def test_options_like_nothing_and_commands_without_recipes() -> None:
    with pytest.raises(UserError, match=r"unknown option --zzz \(see tokenfree pretrain --help\)"):
        split_arguments("pretrain", ["--zzz"], OPTIONS, PRETRAINING)
    with pytest.raises(UserError, match=r"--train\.steps \(see tokenfree verify --help\)"):
        split_arguments("verify", ["--train.steps", "1"], OPTIONS, None)


@pytest.mark.parametrize("rest", [[], ["--output", "x"]])
def test_a_key_needs_a_value(rest: list[str]) -> None:
    with pytest.raises(UserError, match=r"--train\.steps needs a value"):
        split_arguments("pretrain", ["--train.steps", *rest], OPTIONS, PRETRAINING)
