"""The recipes of the documents' own sizes have the parameters and the multiply-accumulates that the documents give."""

import argparse
import re

import pytest
import torch

from tests.conftest import REPOSITORY
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.step import pretraining_task
from tokenfree.train.model.common.basic import Cost
from tokenfree.train.model.costs import costs
from tokenfree.train.objectives.base import head_cost
from tokenfree.workflows import cli
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.library import load

DOCS = REPOSITORY / "docs" / "recipes.md"
LAYER = 7_087_872
CANINE = 132_082_944
MLM_TRANSFORM = 592_128


def recipe_of(name: str, **overrides: str) -> PretrainRecipe:
    keys = [(key.replace("__", "."), value) for key, value in overrides.items()]
    return load(PretrainRecipe, argparse.Namespace(recipe=name, config=None, overrides=keys))


def parts(name: str, num_targets: int | None = None, **overrides: str) -> list[Cost]:
    recipe = recipe_of(name, **overrides)
    return costs(recipe.model, recipe.train.length, num_targets)


def parameters(name: str, **overrides: str) -> int:
    return sum(part.parameters for part in parts(name, None, **overrides))


def billions(found: list[Cost]) -> float:
    """Multiply-accumulates of a forward pass, to the digit that the documents give."""
    return round(sum(part.multiply_accumulates for part in found) / 1e9, 1)


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("canine-s-base", CANINE),
        ("canine-c-base", CANINE),
        ("canine-c-ngrams-base", CANINE - 12_582_912 + 46_080_000),
        ("canine-c-no-concatenation-base", CANINE - 4 * 768 * 768),
        ("canine-c-residual-initial-base", CANINE - 4 * 768 * 768),
        ("canine-c-residual-units-base", CANINE - 4 * 768 * 768),
        ("canine-s-attend-down-base", CANINE),
        ("canine-s-half-buckets-base", CANINE - 12_582_912 // 2),
        ("canine-s-character-vocabulary-base", CANINE),
        ("canine-s-no-local-layer-base", CANINE - LAYER),
        ("canine-s-rate-5-base", CANINE + 768 * 768),
        ("canine-s-rate-6-base", CANINE + 2 * 768 * 768),
        ("canine-s-all-positions-base", CANINE),
        ("canine-s-longformer-base", CANINE),
        ("canine-s-longformer-half-window-base", CANINE),
        ("canine-s-longformer-double-window-base", CANINE),
        ("canine-s-longformer-quadruple-window-base", CANINE),
        ("canine-s-longformer-no-global-base", CANINE),
        ("canine-s-longformer-separate-base", CANINE + 12 * 1_771_776),
        ("canine-s-longformer-dilated-base", CANINE),
        ("canine-s-longformer-double-length-base", CANINE),
        ("canine-s-longformer-quadruple-length-base", CANINE),
    ],
)
def test_parameters_of_canine(name: str, total: int) -> None:
    assert parameters(name) == total


def test_parameters_of_canine_with_fewer_positions() -> None:
    assert parameters("canine-s-base", model__embedder__max_characters="2048") == 121_072_896
    assert parameters("char-bert-base") + 2 * LAYER + 2_361_600 + 4_720_896 == 121_072_896


# Where the document counts them.
INPUT = {"model__embedder__segments": "2", "model__trunk__segments__name": "none"}


@pytest.mark.parametrize(
    ("name", "overrides", "english", "multilingual"),
    [
        ("bert-learned-base", {}, 110_104_890, 178_913_472),
        ("bert-none-base", {}, 109_711_674, 178_520_256),
        ("bert-sinusoidal-base", {}, 109_711_674, 178_520_256),
        ("bert-diet_rel-base", INPUT, 109_858_986, 178_667_568),
        (
            "bert-diet_rel-base",
            {**INPUT, "model__trunk__positions__sharing": "layer_wise"},
            109_723_950,
            178_532_532,
        ),
        (
            "bert-diet_abs-base",
            {**INPUT, "model__trunk__positions__sharing": "none"},
            128_586_042,
            197_394_624,
        ),
        ("bert-diet_abs-base", INPUT, 111_284_538, 180_093_120),
        ("bert-shaw-base", {}, 112_855_866, 181_664_448),
    ],
)
def test_parameters_of_diet(name: str, overrides: dict[str, str], english: int, multilingual: int) -> None:
    """All that is trained, with the tied head: 110,104,890 for BERT over 30,522 subwords, CLS, SEP and MASK among them.

    Heads count as the document has them: a transform, and a bias for each row of the table.
    """
    for size, total in ((30_522, english), (120_000, multilingual)):
        assert trained(name, model__embedder__size=str(size), **overrides) == total


@pytest.mark.parametrize(
    ("name", "overrides", "total"),
    [
        ("bert-multilingual-learned-base", {}, 178_913_472),
        ("bert-multilingual-diet_rel-base", INPUT, 178_667_568),
        ("bert-multilingual-diet_abs-base", INPUT, 180_093_120),
    ],
)
def test_parameters_of_diets_multilingual_setting(name: str, overrides: dict[str, str], total: int) -> None:
    assert trained(name, model__embedder__size="120000", **overrides) == total
    recipe = recipe_of(name)
    assert (recipe.train.length, recipe.train.steps, recipe.train.smoothing) == (512, 125_000, 0.7)


def test_parameters_of_byte2words_baselines() -> None:
    """BERT-large with the norm that ends a pre-LN stack; filters of 16 bytes, and of CharacterBERT's public size."""
    assert parameters("bert-large-base") == 335_141_888 + 2 * 1024
    small, public = (
        {part.name: part.parameters for part in parts(name)}
        for name in ("byte2word-cnn-base", "byte2word-cnn-public-base")
    )
    assert 150_000 < small["byte table"] + small["character convolutions"] + small["highways"] < 250_000
    filters = {1: 32, 2: 32, 3: 64, 4: 128, 5: 256, 6: 512, 7: 1024}
    assert public["character convolutions"] == sum(
        (16 * width + 1) * count for width, count in filters.items()
    )
    assert public["highways"] == 2 * 2 * (2048 * 2048 + 2048)
    assert public["pooled projection"] == 2048 * 768 + 768


def trained(name: str, **overrides: str) -> int:
    """The parameters of a recipe's encoder and head, for data of as many subwords as its table has rows for."""
    recipe = recipe_of(name, **overrides)
    size = recipe.objective.vocabulary_size(recipe.model)
    assert size is not None
    with torch.device("meta"):
        task = pretraining_task(recipe, size)
    return sum(parameter.numel() for parameter in task.parameters())


@pytest.mark.parametrize(
    ("name", "before_output", "classes"),
    [
        ("bert-base", 768, 120_003),
        ("bert-learned-base", 768, 30_522),
        ("char-bert-base", 768, 16_384),
        ("canine-c-base", 2 * 768 + 4 * 768 + 2 * 3072, 16_384),  # two vectors joined, then a layer
    ],
)
def test_the_head_is_counted_where_its_size_is_known(name: str, before_output: int, classes: int) -> None:
    recipe = recipe_of(name)
    head = head_cost(recipe.objective, recipe.model, 10)
    assert head is not None
    assert parameters(name) + head.parameters == trained(name)
    assert head.multiply_accumulates == 10 * 768 * (before_output + classes)
    assert head_cost(recipe_of("canine-s-base").objective, recipe.model, 10) is None


@pytest.mark.parametrize(
    ("name", "without_segments", "own"),
    [
        ("bert-diet_rel-base", True, 12 * 12 * 1023 + 576),
        ("bert-diet_abs-base", True, 1_572_864 + 12 * 4),
        ("bert-t5-base", False, 12 * 32),
        ("bert-tupe-base", False, (512 + 2 * 768) * 768 + 12 * 1023 + 2 * 12),
        ("bert-linformer-base", False, 512 * 768 + 12 * 32 * 512),
        ("bert-diet_abs_lin-base", False, 12 * 32 * 512 + 12 * (512 + 32) * 64),
    ],
)
def test_what_position_codes_add(name: str, without_segments: bool, own: int) -> None:
    plain = 109_711_674 - MLM_TRANSFORM - 30_522 - (2 * 768 if without_segments else 0)
    assert parameters(name) == plain + own


@pytest.mark.parametrize(
    ("name", "num_targets", "total"),
    [
        ("canine-s-base", None, 95.0),
        ("canine-s-base", 80, 77.2),
        ("canine-s-all-positions-base", 80, 95.0),
        ("bert-base", 80, 48.3),
        ("char-bert-base", 320, 251.3),
        ("char-bert-subwords-base", 80, 251.3),
    ],
)
def test_multiply_accumulates(name: str, num_targets: int | None, total: float) -> None:
    assert billions(parts(name, num_targets)) == total


def test_multiply_accumulates_of_classification() -> None:
    """The vector of the whole needs no UP."""
    down = [
        part for part in parts("canine-s-base") if part.name not in ("up convolution + norm", "final layer")
    ]
    assert billions(down) == 64.4


def test_windows_save_little_of_512_units() -> None:
    """Attention products are 4.8 of the deep stack's 48.3 billion; of those a window of 64 leaves a quarter."""
    full, windows = (
        next(part.multiply_accumulates for part in parts(name, 80) if part.name == "deep stack")
        for name in ("canine-s-base", "canine-s-longformer-no-global-base")
    )
    pairs = 2 * 768 * 12
    assert round(full / 1e9, 1) == 48.3
    assert round(512 * 512 * pairs / 1e9, 1) == 4.8
    assert full - windows == (512 * 512 - 61_888) * pairs


def test_the_public_sizes() -> None:
    """179 million for BERT over subwords, with its head, whose output layer is the table."""
    assert round(trained("bert-base") / 1e6) == 179


def test_the_docs_list_every_recipe() -> None:
    listed = set()
    for row in re.findall(r"^\| (`.+?`) \|", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE):
        first, *endings = re.findall(r"`(.+?)`", row)
        names = [first, *(re.sub(r"-[^-]+$", "", first) + ending for ending in endings)]
        for name in names:
            choices = re.search(r"\{(.+)\}", name)
            for choice in choices[1].split(", ") if choices else [""]:
                chosen = re.sub(r"\{.+\}", choice, name)
                listed |= {chosen.replace("*", size) for size in ("tiny", "base")}
    assert set(library.names()) - listed == set()


def test_the_list_of_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["model", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == library.names()
    assert all(len(line.split()) > 3 for line in lines)
    about = dict(line.split(maxsplit=1) for line in lines)
    assert about["canine-s-base"].startswith("CANINE-S as in the paper (arXiv 2103.06874, section 4.1")
    assert about["bert-tupe-tiny"] == "BERT with TUPE (Ke et al. 2021)"


def test_a_name_that_no_recipe_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["model", "canine-s-tinny"]) == 2
    error = capsys.readouterr().err
    assert "did you mean canine-s-tiny" in error
    assert "tokenfree model --list" in error
    assert len(error) < 200
    assert cli.main(["model", "qqqq"]) == 2
    assert "did you mean" not in capsys.readouterr().err
