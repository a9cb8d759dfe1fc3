"""The recipes that come with tokenfree: each builds, and overrides land where they should."""

import argparse
import re
from pathlib import Path

import pytest
import yaml

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.core.settings_values import fingerprint
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.train.checks import check_finetuning
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe
from tokenfree.train.model.costs import costs
from tokenfree.train.model.encoder import check
from tokenfree.train.sweep.recipe import SweepRecipe, check_space
from tokenfree.train.tasks.examples.texts import GLUE
from tokenfree.workflows import cli
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.library import load
from tokenfree.workflows.recipes.training import resolve_sweep

PREPROCESSING = ["wikipedia", "wikipedia-tiny"]
SUMMATION = [f"mirrored-summation{model}" for model in ("", "-deep-hier-s", "-hier-s", "-transformer")]
FINETUNING = [
    "classification",
    *(f"glue-{task}-base" for task in GLUE if task not in ("wnli", "ax")),
    "language-modelling",
    *SUMMATION,
    "ner",
    "ner-base",
    "pairs",
    "pos",
    "qa-squad",
    "qa-squad-base",
    "qa-tydi",
    "qa-tydi-base",
    "qa-tydi-longformer-base",
    "xnli-base",
]
SWEEPS = [name for name in library.names() if "space" in library.read(name)]
PRETRAINING = [name for name in library.names() if name not in PREPROCESSING + FINETUNING + SWEEPS]


def arguments(
    recipe: str | None, *overrides: tuple[str, str], config: str | None = None
) -> argparse.Namespace:
    return argparse.Namespace(recipe=recipe, config=config, overrides=list(overrides))


def test_every_recipe_of_the_files_is_found_and_no_name_occurs_twice() -> None:
    bases, variants = (sorted((library.FOLDER / folder).iterdir()) for folder in ("bases", "variants"))
    assert sorted(library.FOLDER.rglob("*.y*ml")) == [*bases, *variants]
    assert {path.suffix for path in [*bases, *variants]} == {".yaml"}
    names = [path.stem for path in bases]
    for path in variants:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {name: library.read(name) for name in found} == found
        names += re.findall(r"^([^#\s]+):", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(names) == library.names()


@pytest.mark.parametrize("name", ["canine-s-half-buckets-tiny", "three-knobs-tiny", "wikipedia", "ner-base"])
def test_a_printed_recipe_has_the_same_settings(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["model", "--show", name]) == 0
    mine = tmp_path / "mine.yaml"
    mine.write_text(capsys.readouterr().out, encoding="utf-8")
    assert mine.read_text(encoding="utf-8").startswith("# ")
    assert library.read_based(str(mine)) == library.read_based(name)
    assert ("base" in library.read(str(mine))) == (name in SWEEPS)


def test_a_recipe_that_cannot_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["model", "--show", "canine-s-tinny"]) == 2
    assert "did you mean canine-s-tiny" in capsys.readouterr().err


@pytest.mark.parametrize("name", PREPROCESSING)
def test_preprocessing_recipes_build(name: str) -> None:
    assert load(PreprocessConfig, arguments(name)).window.max_characters > 0


@pytest.mark.parametrize("name", PRETRAINING)
def test_pretraining_recipes_build_and_fit_together(name: str) -> None:
    recipe = load(PretrainRecipe, arguments(name))
    assert check(recipe.model, recipe.train.length) == []
    assert recipe.objective.check(recipe.model, None) == []
    assert costs(recipe.model, recipe.train.length, 8)


@pytest.mark.parametrize("name", FINETUNING)
def test_fine_tuning_recipes_build_and_fit_together(name: str) -> None:
    recipe = load(FinetuneRecipe, arguments(name))
    assert check_finetuning(recipe) == []
    assert costs(recipe.model, recipe.train.length, 8)


@pytest.mark.parametrize(
    "name", [name for name in PRETRAINING if name.endswith("-tiny") and not re.search("-(fast|words)-", name)]
)
def test_every_tiny_recipe_has_one_of_the_documents_own_size(name: str) -> None:
    recipe, base = (
        load(PretrainRecipe, arguments(each)) for each in (name, name.removesuffix("tiny") + "base")
    )
    for part in ("embedder", "downsampler", "upsampler"):
        assert getattr(recipe.model, part).name == getattr(base.model, part).name
    assert recipe.model.trunk.attention.name == base.model.trunk.attention.name
    assert recipe.objective.name == base.objective.name


@pytest.mark.parametrize("name", [name for name in library.names() if name.endswith("-base")])
def test_every_recipe_of_a_documents_size_names_it(name: str) -> None:
    comment = re.findall(r"^# (.*)", library.resolved_text(name), flags=re.MULTILINE)
    assert re.search(r"arXiv \d{4}\.\d{5}|et al\. \d{4}|the report", " ".join(comment))


def test_what_the_documents_train_with() -> None:
    """Of CANINE's Table 2 all rows have pairs of sentences and one schedule; Byte2Word and DIET have no pairs."""
    bases = [name for name in PRETRAINING if name.endswith("-base")]
    loaded = {name: load(PretrainRecipe, arguments(name)) for name in bases}
    table_2 = ["bert-base", "char-bert-base", "char-bert-subwords-base", "canine-s-base", "canine-c-base",
               "canine-c-ngrams-base"]  # fmt: skip
    for name in table_2:
        train = loaded[name].train
        assert loaded[name].objective.next_sentence
        assert (train.steps, train.global_batch, train.learning_rate, train.optimizer.name) == (
            124_000,
            4096,
            0.018,
            "lamb",
        )
        assert train.length == (512 if name == "bert-base" else 2048)
    for name, recipe in loaded.items():
        if name.startswith(("bert-", "byte2word-")) and name != "bert-base":
            assert not recipe.objective.next_sentence
        assert recipe.objective.name != "masked_subwords" or recipe.objective.tied
    assert {loaded[name].train.length for name in loaded if name.startswith("canine-s-rate")} == {2048}
    assert loaded["byte2word-base"].objective.lower_case


def test_ablations_differ_in_what_they_say() -> None:
    """Each from CANINE, and from every other."""
    for base in ("canine-s", "canine-c"):
        ablations = [
            name for name in PRETRAINING if name.startswith(base) and name.endswith(("-tiny", "-base"))
        ]
        loaded = [load(PretrainRecipe, arguments(name)) for name in ablations]
        assert len({(fingerprint(recipe.model), recipe.train.length) for recipe in loaded}) == len(loaded)


@pytest.mark.parametrize("name", SWEEPS)
def test_sweep_recipes_build(name: str) -> None:
    check_space(build(SweepRecipe, resolve_sweep(library.read(name)), source=name))


def test_overrides_and_config_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: canine-s-tiny\nmodel: {trunk: {layers: 2}}\n")
    (tmp_path / "over.yaml").write_text("train: {steps: 7}\n")
    recipe = load(
        PretrainRecipe,
        arguments(
            str(tmp_path / "mine.yaml"), ("model.embedder.buckets", "512"), config=str(tmp_path / "over.yaml")
        ),
    )
    tiny = load(PretrainRecipe, arguments("canine-s-tiny"))
    assert (recipe.model.trunk.layers, recipe.train.steps, recipe.model.embedder.buckets) == (2, 7, 512)
    assert recipe.model.width == tiny.model.width


def test_an_option_that_changes_a_part_keeps_its_keys_and_says_which_it_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("base: canine-fast-tiny\n")
    for name in ("canine-fast-tiny", str(tmp_path / "mine.yaml")):
        recipe = load(PretrainRecipe, arguments(name, ("model.upsampler.name", "repeat_add")))
        assert (recipe.model.upsampler.name, recipe.model.upsampler.kernel) == ("repeat_add", 16)
        assert capsys.readouterr().err == ""
        recipe = load(PretrainRecipe, arguments(name, ("model.embedder.name", "codepoint_hash")))
        assert (recipe.model.embedder.buckets, recipe.model.embedder.max_characters) == (2000, 2048)
        assert capsys.readouterr().err == (
            "tokenfree: dropped keys of the recipe that the new part does not have: "
            "model.embedder.orders (codepoint_hash)\n"
        )


def test_a_recipe_that_is_no_yaml(tmp_path: Path) -> None:
    for text in ("model: [", "- 1\n- 2\n"):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(UserError, match=r"recipe .*bad\.yaml"):
            library.read(str(tmp_path / "bad.yaml"))


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("base: canine-s-tiny\ntrain:\n  steps: 5\ntrain:\n  seed: 3\n")
    with pytest.raises(UserError, match=r"twice\.yaml: .*line 4: the key 'train' is given twice"):
        library.read(str(path))


@pytest.mark.parametrize("base", ["{a: 1}", "[1]", "3"])
def test_a_base_that_is_no_text_is_refused(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: {base}\n")
    for options in ([str(path)], ["--show", str(path)]):
        assert cli.main(["model", *options]) == 2
        assert "base: should be the name or file of a recipe, not " in capsys.readouterr().err


def test_recipes_that_are_based_on_each_other_are_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(f"base: {second}\n")
    second.write_text(f"base: {first}\n")
    with pytest.raises(UserError, match=f"base: {first} -> {second} -> {first} goes round in a circle"):
        library.read_based(str(first))
    second.write_text("base: canine-s-tiny\ntrain: {steps: 7}\n")
    assert library.read_based(str(first))["train"]["steps"] == 7
