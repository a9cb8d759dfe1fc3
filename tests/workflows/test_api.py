"""`import tokenfree`: its names, what importing it loads and sets, recipes by name, and the README's programs."""

import json
import os
import pickle
import pydoc_data.topics as topics
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

import tokenfree
from tests.conftest import REPOSITORY
from tests.train.conftest import RECIPE, write_corpus
from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath
from tokenfree.core.settings import build
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain
from tokenfree.workflows import cli
from tokenfree.workflows.recipes.library import read_based
from tokenfree.workflows.recipes.options import split_arguments

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
NAMES = {
    *("run_preprocess", "pretrain", "finetune", "sweep", "evaluate", "predict", "embed", "export"),
    *("load_encoder", "load_windows", "load_predictor", "load_finetuned", "Recipe", "__version__"),
}


def run(program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, with an environment without OMP_WAIT_POLICY unless given."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"PYTHONPATH": str(REPOSITORY), **variables}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


def test_completion_shows_the_names_and_each_is_there() -> None:
    assert set(dir(tokenfree)) == set(tokenfree.__all__) == NAMES
    for name in NAMES - {"__version__"}:
        assert callable(getattr(tokenfree, name)), name
    assert re.match(r"\d+\.\d+", tokenfree.__version__)


def test_importing_the_package_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = ("torch", "ray", "apache_beam", "pyarrow", "numpy", "pydantic")
    program = (
        f"import sys, tokenfree; dir(tokenfree); print([name for name in {heavy} if name in sys.modules])"
    )
    assert run(program, tmp_path).stdout == "[]\n"


def test_the_package_preprocess_and_the_function_get_along(tmp_path: Path) -> None:
    program = """
import tokenfree
from tokenfree import run_preprocess
import tokenfree.preprocess.config
from tokenfree.preprocess import records
print(tokenfree.preprocess.config.PreprocessConfig.__name__, records.__name__, callable(tokenfree.run_preprocess))
"""
    assert run(program, tmp_path).stdout == "PreprocessConfig tokenfree.preprocess.records True\n"


def test_a_misspelt_name_is_refused_with_what_python_needs_to_suggest_another() -> None:
    with pytest.raises(AttributeError, match="module 'tokenfree' has no attribute 'pretrian'") as caught:
        _ = tokenfree.pretrian  # pyright: ignore[reportAttributeAccessIssue]
    assert (caught.value.name, caught.value.obj) == ("pretrian", tokenfree)


def test_a_missing_package_names_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(tokenfree), "pretrain", raising=False)
    monkeypatch.setitem(tokenfree._HOMES, "pretrain", "tokenfree.train.absent")
    with pytest.raises(ModuleNotFoundError) as raised:
        _ = tokenfree.pretrain
    assert raised.value.__notes__ == [
        f"tokenfree.pretrain needs more packages: pip install '{REPOSITORY}[all]'"
    ]


@pytest.mark.parametrize(
    ("imports", "variables", "policy", "warns"),
    [
        ("tokenfree", {}, "passive", False),
        ("tokenfree", {"OMP_WAIT_POLICY": "active"}, "active", False),
        ("torch, tokenfree", {}, "passive", True),
        ("torch, tokenfree", {"OMP_WAIT_POLICY": "active"}, "active", False),
    ],
)
def test_threads_sleep_while_they_wait(
    imports: str, variables: Mapping[str, str], policy: str, warns: bool, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").touch()  # stands in for torch, which takes seconds to import
    done = run(f"import os, {imports}; print(os.environ['OMP_WAIT_POLICY'])", tmp_path, **variables)
    assert done.stdout == f"{policy}\n"
    lines = [line for line in done.stderr.splitlines() if "UserWarning" in line]
    assert [re.sub(".*UserWarning: ", "", line)[:37] for line in lines] == (
        ["torch was imported before tokenfree: "] if warns else []
    )


def test_a_recipe_by_name_is_the_recipe_with_other_values_laid_over() -> None:
    recipe = tokenfree.Recipe.from_name("canine-s-tiny", train={"steps": 500})
    wanted = to_mapping(build(PretrainRecipe, read_based("canine-s-tiny"), source="test"))
    wanted["train"]["steps"] = 500
    assert to_mapping(recipe) == wanted


def test_a_recipe_by_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"base": "canine-s-tiny", "train": {"steps": 7}}))
    recipe = tokenfree.Recipe.from_name(str(path), model={"trunk": {"layers": 1}})
    assert (recipe.train.steps, recipe.model.trunk.layers, recipe.model.width) == (7, 1, 96)


def test_a_part_that_changes_its_name_keeps_what_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tokenfree.Recipe.from_name("canine-s-tiny", model={"downsampler": {"name": "identity"}})
    assert recipe.model.downsampler.name == "identity"
    assert "that the new part does not have: model.downsampler.rate" in capsys.readouterr().err


def test_recipes_of_other_kinds() -> None:
    assert tokenfree.Recipe.for_finetuning("ner", train={"steps": 5}).train.steps == 5
    sweep = tokenfree.Recipe.for_sweep("three-knobs-tiny", trials=2, budget={"seconds": 100})
    assert (sweep.trials, sweep.budget.unit, sweep.base["model"]["width"]) == (2, "train_seconds", 96)
    config = tokenfree.Recipe.for_preprocessing("wikipedia-tiny", wikipedia=["dump.xml.bz2"])
    assert (config.wikipedia, config.window.max_characters) == (("dump.xml.bz2",), 232)


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("canine-s-tyni", {}, "did you mean canine-s-tiny"),
        ("ner", {}, "a fine-tuning recipe, where a pretraining recipe is expected"),
        ("canine-s-tiny", {"train": {"setps": 5}}, "train.setps"),
        ("canine-s-tiny", {"train": {"steps": -1}}, "train.steps"),
        ("canine-s-tiny", {"steps": 5}, "there is no key 'steps'"),
    ],
)
def test_recipes_that_are_refused(recipe: str, overrides: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        tokenfree.Recipe.from_name(recipe, **overrides)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which the README's program ran, on small data with a small recipe, and what it printed."""
    folder = tmp_path_factory.mktemp("program")
    texts = [(name, text[:2000]) for name, text in sorted(topics.topics.items())[:45]]
    (folder / "data" / "simple").mkdir(parents=True)
    write_corpus(folder / "data" / "simple", texts, max_characters=48, vocabulary=400)
    (folder / "small.yaml").write_text(yaml.safe_dump(RECIPE))
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    lines = list(filter(None, program.splitlines()))
    assert len(lines) == 5
    assert [line for line in lines if "import" in line] == ["import tokenfree"]
    small = program.replace('"canine-s-tiny"', '"small.yaml"').replace('"steps": 500', '"steps": 4')
    assert small.count("small.yaml") == small.count('"steps": 4') == 1
    return folder, run(small, folder).stdout


def test_the_minimal_program_of_the_readme_trains_a_model(trained: tuple[Path, str]) -> None:
    folder, printed = trained
    assert 0 < float(printed) < 10
    lines = (folder / "runs" / "first" / "metrics.jsonl").read_text().splitlines()
    assert [line["step"] for line in map(json.loads, lines) if "loss" in line] == [1, 2, 3, 4]


def test_predict_and_export_what_it_trained(
    trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = trained
    monkeypatch.chdir(folder)
    ((guesses,),) = tokenfree.predict("runs/first", ["See the [MASK:4] of it."], top=3)
    assert len(guesses) == 3
    assert tokenfree.export("runs/first", "exported").step == 4
    assert (folder / "exported" / "config.json").is_file()
    with pytest.raises(UserError, match="Give a list of texts"):
        tokenfree.predict("runs/first", "a [MASK]")
    with pytest.raises(UserError, match="no such format"):
        tokenfree.export("runs/first", "other", to="tensorflow")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("place", [Path, lambda path: f"~/{path}"], ids=["Path", "home"])
def test_every_path_may_be_a_path_object_or_begin_with_home(
    place: Callable[[str], AnyPath],
    trained: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, _ = trained
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("data", "runs", "small.yaml"):
        (tmp_path / name).symlink_to(folder / name)
    (tmp_path / "texts.txt").write_text("one text\n")
    (tmp_path / "labels.tsv").write_text("text\tlabel\n" + "one\tx\ntwo\ty\n" * 4)
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "en.txt").write_text(
        "A goose walks over the wide meadow and looks for fresh grass. " * 40
    )
    (tmp_path / "mine.yaml").write_text(
        yaml.safe_dump({"base": str(place("small.yaml")), "train": {"steps": 2}})
    )
    run, data = place("runs/first"), place("data/simple")

    config = tokenfree.Recipe.for_preprocessing(
        "wikipedia-tiny",
        books=[place("books")],
        vocabulary={"model": place("data/simple/vocabulary/subwords.model")},
    )
    tokenfree.run_preprocess(config, place("made"))
    result = tokenfree.pretrain(place("mine.yaml"), [data], place("second"), init_from=run)
    assert (result.steps, result.run) == (2, str(tmp_path / "second"))
    settings = {"model": RECIPE["model"], "train": {"steps": 2, "global_batch": 4, "length": 64}}
    recipe = tokenfree.Recipe.for_finetuning("classification", **settings)
    tokenfree.finetune(recipe, {"train": place("labels.tsv")}, place("tuned"), init_from=run)
    assert tokenfree.load_finetuned(place("tuned")).evaluate(place("labels.tsv")).metrics is not None
    assert tokenfree.evaluate(run, data)["step"] == 4
    assert len(tokenfree.predict(run, ["a [MASK:4]"], data=data)) == 1
    assert tokenfree.load_predictor(run, data).checkpoint.step == 4
    assert tokenfree.load_encoder(run)(["a text"]).pooled.shape == (1, RECIPE["model"]["width"])
    assert tokenfree.embed(run, place("texts.txt"), place("vectors")).texts == 1
    assert tokenfree.export(run, place("exported")).step == 4
    assert next(tokenfree.load_windows(data))["language"] == "en"
    assert {"made", "second", "tuned", "vectors", "exported"} <= set(os.listdir(tmp_path))
    assert "~" not in os.listdir(tmp_path)


def test_functions_take_the_name_of_a_recipe(tmp_path: Path) -> None:
    output, call = str(tmp_path / "output"), cast(Any, tokenfree.pretrain)
    for function, recipe in (
        ("pretrain", "canine-s-tyni"),
        ("finetune", "nre"),
        ("sweep", "three-knobs-tyni"),
    ):
        with pytest.raises(
            UserError, match=f"recipe {recipe}: no such file, and no recipe of that name.*did you"
        ):
            getattr(tokenfree, function)(recipe, {}, output)
    with pytest.raises(
        UserError, match="ner: a fine-tuning recipe, where a preprocessing recipe is expected"
    ):
        tokenfree.run_preprocess("ner", output)
    with pytest.raises(UserError, match="learns from examples; give a file of them as --train"):
        tokenfree.finetune("ner", {}, output)
    with pytest.raises(UserError, match="a sweep needs a folder"):
        tokenfree.sweep("three-knobs-tiny", data="data", output="s3://bucket/sweep")
    with pytest.raises(UserError, match="so it is not a finished data directory"):
        call(run=output, data=output, recipe="canine-s-tiny")
    with pytest.raises(TypeError, match="missing a required argument: 'data'"):
        call("canine-s-tiny")
    assert tokenfree.pretrain.__doc__ == pretrain.__doc__
    assert pickle.loads(pickle.dumps(tokenfree.sweep)) is tokenfree.sweep


# docs/commands.md is the text of --help, whose examples tests/workflows/test_cli.py reads.
PAGES = [
    REPOSITORY / "README.md",
    *(page for page in sorted((REPOSITORY / "docs").glob("*.md")) if page.name != "commands.md"),
]
UNREAD = {
    "...",
    "--help",
    "--help-keys",
    "--show",
    "--list",
    "--train.stpes",
}  # shown to be cut short, printed or refused


def commands_of(page: Path) -> list[list[str]]:
    """The arguments of each `tokenfree` in the code blocks of a page, of submitted commands too."""
    blocks = "\n".join(
        re.findall(r"^ *```\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )
    lines = re.findall(r"^ *(?:\$ |exec )?tokenfree (.*)", blocks.replace("\\\n", " "), re.MULTILINE)
    found = [shlex.split(re.split(r" [|<>&#]", line)[0]) for line in lines]
    found += [line[line.index("--") + 1 :] for line in found if {"submit", "--"} <= set(line)]
    return [arguments for arguments in found if not UNREAD & set(arguments)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_the_pages_are_understood(page: Path) -> None:
    """Each line names a command, options, keys and recipes that exist; nothing runs."""
    for arguments in commands_of(page):
        (name,), module = arguments[:1], cli._imported(arguments[:1])[arguments[0]]
        own = arguments[1 : arguments.index("--")] if "--" in arguments else arguments[1:]
        parser = cli._parser({name: module})
        options = [option for action in cli._actions(parser) for option in action.option_strings]
        rest, _ = split_arguments(name, own, options, getattr(module, "KIND", None))
        args = parser.parse_args([name, *rest])
        recipe = getattr(args, "recipe", None)
        if recipe and not recipe.endswith(".yaml") and recipe != "RECIPE":
            assert read_based(recipe), arguments


def test_the_readme_shows_the_whole_path() -> None:
    assert {"demo", "preprocess", "pretrain", "finetune", "sweep", "report", "export"} <= {
        c[0] for c in commands_of(PAGES[0])
    }
