"""Every objective in the loop: it learns, and neither micro batches, processes nor interruptions change a thing."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.train.two_processes import TRAINING, in_two_processes
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, merge
from tokenfree.core.settings_values import to_mapping
from tokenfree.preprocess.dataset.manifest import load_manifest, load_vocabulary
from tokenfree.train.checks import check
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import checkpoints
from tokenfree.workflows.recipes import library
from tokenfree.workflows.terminal.results import loss_lines

MakeRecipe = Callable[..., PretrainRecipe]
TIMES = ("seconds", "data_wait", "utilisation")
OBJECTIVES: dict[str, dict[str, Any]] = {
    "canine_c": {"name": "canine_c", "heads": 2, "buckets": 512, "dropout": 0.0},
    "canine_c with pairs": {
        "name": "canine_c",
        "heads": 2,
        "buckets": 512,
        "dropout": 0.0,
        "next_sentence": True,
    },
    "canine_s with pairs": {"name": "canine_s", "next_sentence": True},
    "canine_s with a linear path": {"name": "canine_s"},
    "masked_characters": {"name": "masked_characters", "buckets": 512},
    "masked_bytes": {"name": "masked_bytes"},
    "masked_subwords with pairs": {"name": "masked_subwords", "next_sentence": True},
    "masked_subwords, tied": {"name": "masked_subwords", "tied": True},
}
EMBEDDERS: dict[str, Any] = {
    "masked_subwords": {"embedder": {"name": "subword_table", "size": 403}},
    "masked_bytes": {"embedder": {"name": "byte_table"}},
}
PLAIN = {"downsampler": {"name": "identity"}, "upsampler": {"name": "identity"}, "trunk": {"dropout": 0.0}}


@pytest.fixture
def recipe_of(make_recipe: MakeRecipe) -> MakeRecipe:
    def make(objective: str, **options: Any) -> PretrainRecipe:
        options = {"model": {"trunk": {"dropout": 0.0}}, **options}
        if objective.endswith("linear path"):
            options["model"]["neighbours"] = {"name": "hashed_ngrams", "buckets": 512, "width": 8}
        if objective.startswith("masked"):
            options["model"] = {**PLAIN, **EMBEDDERS.get(objective.split()[0].strip(","), {})}
        mapping = merge(to_mapping(make_recipe(**options)), {"objective": OBJECTIVES[objective]})
        return build(PretrainRecipe, mapping, source="test")

    return make


def run(loop: Loop, until: int) -> list[Mapping[str, float]]:
    lines = list(loop.steps(until))
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_micro_batches_and_interruptions_change_nothing(
    corpus: str, recipe_of: MakeRecipe, tmp_path: Path, objective: str
) -> None:
    whole = run(Loop(recipe_of(objective), corpus), 4)
    parts = run(Loop(recipe_of(objective, micro_batch=3), corpus), 4)
    assert len(whole) == 4
    for one, other in zip(whole, parts, strict=True):
        assert one == pytest.approx(other, rel=2e-4, abs=1e-6)
    first, second = (Loop(recipe_of(objective), corpus) for _ in range(2))
    run(first, 2)
    first.validate()
    checkpoints.write(tmp_path / "saved", *first.snapshot())
    second.load(checkpoints.read(tmp_path / "saved"))
    assert run(second, 4) == whole[2:]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["canine_c with pairs"])
def test_two_processes_are_one(corpus: str, recipe_of: MakeRecipe, tmp_path: Path, objective: str) -> None:
    recipe = recipe_of(objective, micro_batch=2)
    mapping = json.dumps(to_mapping(recipe))
    (lines, validation), _ = in_two_processes(TRAINING, tmp_path, mapping, corpus, "3")
    alone = Loop(recipe, corpus)
    for one, other in zip(run(alone, 3), lines, strict=True):
        assert {name: other[name] for name in one} == pytest.approx(one, rel=1e-3, abs=1e-6)
    assert validation == pytest.approx(alone.validate(), rel=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_is_reported(corpus: str, recipe_of: MakeRecipe, objective: str) -> None:
    loop = Loop(recipe_of(objective), corpus)
    (line,) = run(loop, 1)
    characters = objective.startswith(("canine_c", "masked_characters"))
    assert ("bits_per_character" in line) == characters
    if "pairs" in objective:
        assert line["loss"] == pytest.approx(line["masked_loss"] + line["next_sentence_loss"], abs=0.1)
    elif characters:
        assert line["bits_per_character"] == pytest.approx(line["loss"] / 0.6931, rel=1e-3)
    validation = loop.validate()
    assert {name.removeprefix("validation_") for name in validation if name != "validation_targets"} == set(
        line
    ) - {
        "step",
        "num_targets",
        "learning_rate",
        "gradient_norm",
        "characters",
    }
    baselines = loop.windows.baselines()
    assert baselines is not None
    assert baselines.symbol == ("byte" if "bytes" in objective else "character" if characters else "subword")
    assert 2 < baselines.entropy < 7
    assert len(baselines.clue_N) == validation["validation_targets"]


@pytest.mark.slow
def test_characters_are_learnt_from_their_context(corpus: str, recipe_of: MakeRecipe, tmp_path: Path) -> None:
    """A run of CANINE-C ends below what the characters' frequencies give on the same targets."""
    model = {"width": 32, "trunk": {"dropout": 0.0, "inner_width": 64}}
    options: Any = {"steps": 150, "learning_rate": 0.01, "global_batch": 16, "validation_windows": 64}
    recipe = recipe_of("canine_c", model=model, **options)
    result = pretrain(recipe, corpus, str(tmp_path / "run"))
    assert result.symbol == "character"
    assert result.unigram_cross_entropy is not None
    assert result.validation_loss < result.unigram_cross_entropy
    bits = result.validation_means["validation_bits_per_character"]
    assert bits == pytest.approx(result.validation_loss / 0.693147, rel=1e-5)
    assert f"nats per character ({bits:.3f} bits per character), accuracy " in loss_lines(result)[0]


def test_parts_that_do_not_fit_are_refused_together(corpus: str, recipe_of: MakeRecipe) -> None:
    def mistakes(recipe: PretrainRecipe) -> list[str]:
        return [
            m.split(";")[0] for m in check(recipe, load_manifest(corpus), vocabulary=load_vocabulary(corpus))
        ]

    subwords, characters = recipe_of("masked_subwords with pairs"), recipe_of("canine_c", streams=3)
    assert mistakes(subwords) == []
    swapped = dataclasses.replace(subwords, objective=build_objective({"name": "canine_c", "heads": 5}))
    assert mistakes(swapped) == [
        "model.embedder.name: subword_table reads subwords, but objective.name: canine_c gives it characters",
        "objective.heads: 5 does not divide model.width, 16",
    ]
    swapped = dataclasses.replace(characters, objective=subwords.objective)
    assert mistakes(swapped) == [
        "train.streams: 3 streams do not divide train.global_batch 8",
        "model.embedder.name: codepoint_hash reads characters, but objective.name: masked_subwords gives it subwords",
    ]
    with pytest.raises(UserError, match=r"did you mean .*mask_fraction"):
        build_objective({"name": "canine_c", "mask_fractoin": 0.1})


def build_objective(mapping: dict[str, Any]) -> Any:
    return build(PretrainRecipe, {"objective": mapping}, source="test").objective


NAMES = ["canine-c-tiny", "canine-c-small", "canine-c-base", "canine-c-ngrams-tiny", "canine-c-ngrams-base",
         "canine-s-ngrams-tiny", "canine-s-ngrams-base", "bert-tiny", "bert-base", "char-bert-tiny", "char-bert-base",
         "byte-bert-tiny", "byte-bert-base"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_recipes_fit_together(corpus: str, name: str) -> None:
    recipe = build(PretrainRecipe, library.read_based(name), source=name)
    assert check(recipe, load_manifest(corpus), vocabulary=load_vocabulary(corpus)) == []
