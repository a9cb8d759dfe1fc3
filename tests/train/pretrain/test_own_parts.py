"""The page "Parts of your own": its example trains, and what it says of opening such a run is so."""

import contextvars
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY
from tokenfree import Recipe, load_encoder, load_predictor, sweep
from tokenfree.core import own_code
from tokenfree.core.errors import UserError
from tokenfree.core.own_code import UntrustedCode
from tokenfree.core.settings import build, merge
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe
from tokenfree.train.evaluate import evaluate
from tokenfree.train.huggingface.folders import export_run
from tokenfree.train.huggingface.onnx import export_graph
from tokenfree.train.jobs.init_from import read_weights
from tokenfree.train.loop.pretraining import TrainJob
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs.run import Run
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.subjects import TaskInput
from tokenfree.workflows import cli
from tokenfree.workflows.recipes import library
from tokenfree.workflows.report.page import write_report

PAGE = (REPOSITORY / "docs" / "own_parts.md").read_text(encoding="utf-8")
SMALL = {
    "model": {
        "width": 16,
        "embedder": {"buckets": 128, "max_characters": 128},
        "trunk": {"layers": 1, "heads": 2},
    },
    "train": {
        "steps": 2,
        "global_batch": 4,
        "streams": 2,
        "validation_windows": 4,
        "length": 64,
        "threads": 1,
    },
}
OWN = {"objective": ("objectives.canine_s", "Config"), "train.optimizer": ("optimizers.lamb", "Config")}


def block(language: str) -> str:
    """The one block of the page in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with the files of the page. Its code is trusted, and forgotten afterwards."""
    (tmp_path / "my_module.py").write_text(block("python"), encoding="utf-8")
    (tmp_path / "mean.yaml").write_text(block("yaml"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    with own_code.trusting(True, "test"):
        yield tmp_path
    for name in sys.modules.keys() - before:
        if name.partition(".")[0] != "tokenfree" and str(tmp_path) in str(
            getattr(sys.modules[name], "__file__", "")
        ):
            del sys.modules[name]


@pytest.fixture
def recipe(folder: Path) -> PretrainRecipe:
    """That of the page, small."""
    return build(PretrainRecipe, merge(library.read_based("mean.yaml"), SMALL), source="recipe mean.yaml")


@pytest.fixture
def run(recipe: PretrainRecipe, corpus: str, folder: Path) -> str:
    """A run of it."""
    assert pretrain(recipe, corpus, "run").steps == 2
    return "run"


def options(over: Any) -> list[str]:
    """A mapping as options of the command line."""
    found: list[str] = []
    for key, value in over.items():
        if isinstance(value, dict):
            found += [text.replace("--", f"--{key}.", 1) for text in options(value)]
        else:
            found += [f"--{key}={value}"]
    return found


def test_the_example_averages_real_characters(recipe: PretrainRecipe) -> None:
    import torch

    down = recipe.model.downsampler.build(recipe.model.dimensions)
    x, mask = torch.randn(1, 7, 16), torch.tensor([[True] * 5 + [False] * 2])
    units, valid, grouping, characters = down(x, mask)
    assert valid.tolist() == [[True, True]]
    assert grouping.unit_BC.tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    torch.testing.assert_close(units[0], torch.stack([x[0, :4].mean(0), x[0, 4]]))
    assert characters is x


def test_the_commands_of_the_page(folder: Path, corpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["pretrain", "mean.yaml", "--data", corpus, "--output", "run", "--model.downsampler.rate", "3"]
    assert cli.main(["model", "mean.yaml", "--trust-code"]) == 0
    assert "mean pooling" in capsys.readouterr().out
    for end in ("checkpoint", "already complete"):
        assert cli.main([*command, *options(SMALL), "--train.length=66", "--trust-code"]) == 0
        assert end in capsys.readouterr().out
    del sys.modules["my_module"]
    assert cli.main(["evaluate", "run", "--data", corpus]) == 2
    assert "my_module.MeanPool" in capsys.readouterr().err
    for flag in ("--trust-code", "--trust_code"):
        assert cli.main(["evaluate", "run", "--data", corpus, flag]) == 0
    assert cli.main(["predict", "run", "a [MASK]", "--trust-code"]) == 0
    assert cli.main(["export", "run", "--to", "huggingface", "out", "--trust-code"]) == 0
    write_report(["run"], "page.html")


def test_the_refusal_of_the_page(folder: Path) -> None:
    (folder / "my_module.py").write_text(block("python").replace("def build", "def built"), encoding="utf-8")
    with pytest.raises(UserError) as refused:
        build(PretrainRecipe, library.read_based("mean.yaml"), source="recipe mean.yaml")
    assert f"`{refused.value}`" in PAGE.splitlines()


def test_whatever_opens_a_run_refuses_code_and_names_it(run: str, corpus: str, folder: Path) -> None:
    (folder / "my_module.py").write_text("raise SystemExit('was run')", encoding="utf-8")
    del sys.modules["my_module"]
    plain = build(PretrainRecipe, merge(library.read_based("canine-s-tiny"), SMALL), source="r")
    opens: list[Callable[[], Any]] = [
        lambda: load_encoder(run),
        lambda: load_predictor(run),
        lambda: evaluate(run, corpus),
        lambda: export_run(run, "out"),
        lambda: export_graph(run, "out"),
        lambda: read_weights(run),
        lambda: pretrain(plain, corpus, "new", init_from=run),
    ]
    for opened in opens:
        with pytest.raises(
            UntrustedCode, match=r"run names code outside tokenfree, my_module\.MeanPool, .*--trust-code"
        ):
            opened()
    for steps in (None, 4):
        with pytest.raises(
            UserError, match=r"parts that are not in the recipe, my_module\.MeanPool; give the"
        ):
            pretrain(plain, corpus, run, extend_to=steps)
    assert not (folder / "new").exists()


@pytest.fixture
def untrusted(folder: Path, corpus: str) -> Path:
    """Files and folders of somebody else, which name a module that leaves a mark when it is imported."""
    (folder / "my_module.py").write_text("open('was_run', 'w').close()\n", encoding="utf-8")
    named = {"downsampler": {"name": "my_module.MeanPool", "rate": 4}}
    base = {"base": "canine-s-tiny", "model": named}
    space: Any = {"train.learning_rate": {"choice": [0.01, 0.02]}}
    tried = {"model.downsampler": {"choice": ["strided", named["downsampler"]]}}
    task = merge(library.read_based("classification"), {"model": named})
    plain = to_mapping(build(PretrainRecipe, library.read_based("canine-s-tiny"), source="r"))
    files = {
        "finetune.yaml": task,
        "sweep.yaml": {"base": "mean.yaml", "space": space},
        "space.yaml": {"base": "canine-s-tiny", "space": tried, "trials": 1},
        "overrides.yaml": {"base": "canine-s-tiny", "space": space, "overrides": {"model": named}},
        "variants.yaml": {"base": "canine-s-tiny", "space": {"variant": {"choice": ["mean.yaml"]}}},
        "task.yaml": {"base": "finetune.yaml", "space": space},
        "run/config.yaml": {
            "format": 1,
            "recipe": merge(plain, {"model": named}),
            "data": corpus,
            "manifest": "0" * 32,
        },
        "sweep/sweep.yaml": {
            "format": 1,
            "recipe": {"base": merge(plain, {"model": named}), "space": space, "overrides": {}},
            "inputs": {"data": [corpus], "overrides": {}},
        },
    }
    for name, mapping in {"mean.yaml": base, **files}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(yaml.safe_dump(mapping), encoding="utf-8")
    (folder / "labels.tsv").write_text("text\tlabel\na\tb\nc\td\n")
    return folder


COMMANDS = [
    "model mean.yaml",
    "model canine-s-tiny --config mean.yaml",
    "model run/config.yaml",
    "model canine-s-tiny --model.downsampler my_module.MeanPool",
    "plan mean.yaml --gpus 1",
    "doctor mean.yaml",
    "pretrain mean.yaml --data DATA --output out --dry-run",
    "pretrain mean.yaml --data DATA --output out",
    "pretrain --output run",
    "pretrain canine-s-tiny --data DATA --output out --init-from run",
    "finetune finetune.yaml --train labels.tsv --output out",
    "finetune classification --train labels.tsv --output out --init-from run",
    "sweep sweep.yaml --data DATA --output out",
    "sweep sweep.yaml --data DATA --output out --dry-run",
    "sweep space.yaml --data DATA --output out",
    "sweep overrides.yaml --data DATA --output out",
    "sweep variants.yaml --data DATA --output out",
    "sweep task.yaml --train labels.tsv --dev labels.tsv --output out",
    "sweep --output sweep",
    "sweep sweep/sweep.yaml --output sweep",
    "evaluate run --data DATA",
    "predict run a[MASK]",
    "embed run labels.tsv --output out",
    "export run --to onnx out",
    "analyze attention run",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_trusting_is_required_by_commands(
    command: str, untrusted: Path, corpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([corpus if word == "DATA" else word for word in command.split()]) == 2
    message = capsys.readouterr().err
    assert not (untrusted / "was_run").exists()
    assert message.count("\n") == 1
    assert "names code outside tokenfree, my_module.MeanPool, " in message
    assert "give --trust-code (in Python trust_code=True) if you trust it" in message
    assert not (untrusted / "out").exists()
    with pytest.raises(SystemExit):
        cli.main([command.split()[0], "--help"])
    assert "--trust-code" in capsys.readouterr().out


def test_trusting_is_required_in_python(untrusted: Path, corpus: str) -> None:
    space = {"train.learning_rate": {"choice": [0.01, 0.02]}}
    built = build(SweepRecipe, {"base": library.read_based("mean.yaml"), "space": space}, source="r")
    calls: list[Callable[[], Any]] = [
        lambda: Recipe.from_name("mean.yaml"),
        lambda: Recipe.from_name("canine-s-tiny", model={"downsampler": "my_module.MeanPool"}),
        lambda: Recipe.for_finetuning("finetune.yaml"),
        lambda: sweep(built, corpus, "out"),
        lambda: sweep(Recipe.for_sweep("sweep.yaml"), corpus, "out"),
        lambda: sweep(Recipe.for_sweep("space.yaml"), corpus, "out"),
        lambda: sweep(
            Recipe.for_sweep("task.yaml"), TaskInput({"train": "labels.tsv", "dev": "labels.tsv"}), "out"
        ),
    ]
    for call in calls:
        with pytest.raises(UntrustedCode, match=r"names code outside tokenfree, my_module\.MeanPool, "):
            contextvars.Context().run(call)
    assert not (untrusted / "was_run").exists()


def test_trusting_is_required_outside_of_functions_that_ask(untrusted: Path) -> None:
    with pytest.raises(UserError, match=r"my_module\.MeanPool is code outside tokenfree; give --trust-code"):
        contextvars.Context().run(
            build, PretrainRecipe, library.read_based("mean.yaml"), source="recipe mean.yaml"
        )


def test_a_report_runs_no_code(run: str, corpus: str, folder: Path) -> None:
    (folder / "my_module.py").write_text("open('was_run', 'w').close()\n", encoding="utf-8")
    del sys.modules["my_module"]
    page = write_report([run, corpus], "page.html").read_text(encoding="utf-8")
    assert not (folder / "was_run").exists()
    assert (
        "No predictions: a report runs no code from outside tokenfree, and this run names my_module.MeanPool"
        in page
    )


def test_whoever_trusts_it_opens_it(run: str, recipe: PretrainRecipe, corpus: str) -> None:
    assert load_encoder(run, trust_code=True)(["a text"]).characters.shape[-1] == 16
    assert load_predictor(run, trust_code=True)("a [MASK:2]", 1)
    plain = build(PretrainRecipe, merge(library.read_based("canine-s-tiny"), SMALL), source="r")
    assert pretrain(plain, corpus, "new", init_from=run, trust_code=True).steps == 2
    assert pretrain(recipe, corpus, "same", init_from=run).steps == 2  # the recipe names the code itself
    assert pretrain(recipe, corpus, run, extend_to=3).steps == 3


def test_a_changed_file_is_warned_of(
    run: str, recipe: PretrainRecipe, corpus: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = yaml.safe_load((folder / run / "config.yaml").read_text(encoding="utf-8"))["code"]
    assert list(before) == ["my_module.MeanPool"]
    with (folder / "my_module.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    for _ in range(2):  # resuming does not make the file that of the run
        assert pretrain(recipe, corpus, run).already_complete
    load_encoder(run, trust_code=True)
    # Each command once, under the name of the run that it was given.
    assert len([text for text in caplog.messages if "my_module.MeanPool has changed since" in text]) == 2


@pytest.mark.parametrize("key", OWN)
def test_an_objective_and_an_optimizer(folder: Path, corpus: str, key: str) -> None:
    """These stay behind in an export, which is that of a CANINE."""
    module, name = OWN[key]
    text = f"""
from tokenfree.core.settings import settings
from tokenfree.train.{module} import {name}

@settings
class Mine({name}):
    name: str = "mine_11.Mine"
"""
    (folder / "mine_11.py").write_text(text, encoding="utf-8")
    chosen: Any = "mine_11.Mine"
    for part in reversed(key.split(".")):
        chosen = {part: chosen}
    mapping = merge(merge(library.read_based("canine-s-tiny"), SMALL), chosen)
    assert pretrain(build(PretrainRecipe, mapping, source="r"), corpus, "run").steps == 2
    assert export_run("run", "out", trust_code=True).reader == "CanineModel"


@pytest.mark.parametrize(
    ("over", "base", "problem"),
    [
        (
            {"objective": "empty.Empty"},
            "objectives.base.Objective",
            "Empty lacks build, check, collator, symbols",
        ),
        (
            {"objective": "empty.Empty"},
            "optimizers.base.OptimizerConfig",
            "its settings do not inherit Objective",
        ),
        ({"train": {"optimizer": "empty.Empty"}}, "optimizers.base.OptimizerConfig", "Empty lacks build"),
    ],
)
def test_what_a_part_lacks_in_other_slots(folder: Path, over: Any, base: str, problem: str) -> None:
    module, _, name = base.rpartition(".")
    text = f"from tokenfree.train.{module} import {name}\nclass Empty({name}): name: str = 'empty.Empty'"
    (folder / "empty.py").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=f": {problem} "):
        build(PretrainRecipe, over, source="r")


def test_what_a_task_lacks(folder: Path) -> None:
    text = "from tokenfree.train.tasks.base import DownstreamTask\n"
    text += "class Empty(DownstreamTask): name: str = 'empty.Empty'"
    (folder / "empty.py").write_text(text, encoding="utf-8")
    with pytest.raises(
        UserError, match=r"task: .* Empty lacks build, collator, examples, predictions, raw, scores "
    ):
        build(FinetuneRecipe, {"task": "empty.Empty"}, source="r")


def test_a_run_in_a_store_is_refused_alike(
    recipe: PretrainRecipe, corpus: str, folder: Path, bucket: str
) -> None:
    pretrain(recipe, corpus, f"{bucket}/run")
    del sys.modules["my_module"]
    with pytest.raises(UntrustedCode, match=r"my_module\.MeanPool"):
        load_encoder(f"{bucket}/run")
    assert load_encoder(f"{bucket}/run", trust_code=True)
    with pytest.raises(UserError, match="holds no run"):
        Run(f"{bucket}/nowhere").fetch()


def test_a_worker_without_the_module_says_so(recipe: PretrainRecipe, folder: Path) -> None:
    from tokenfree.train.ray.driver import _unpickled

    job = TrainJob(recipe=recipe, data="data", run="run")
    assert _unpickled(pickle.dumps(job)) == job
    pickled = pickle.dumps(job)
    (folder / "my_module.py").unlink()
    del sys.modules["my_module"]
    with pytest.raises(UserError, match=r"No module named 'my_module'\); have its module on every node"):
        _unpickled(pickled)


def test_a_worker_imports_from_the_working_directory_first(
    recipe: PretrainRecipe,
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the command does: a module of that name elsewhere on its path, as one of ours may be, is not taken."""
    from tokenfree.train.ray.driver import _unpickled

    pickled = pickle.dumps(TrainJob(recipe=recipe, data="data", run="run"))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "my_module.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(elsewhere)
    del sys.modules["my_module"]
    assert type(_unpickled(pickled).recipe.model.downsampler).__name__ == "MeanPool"
    assert sys.modules["my_module"].__file__ == str(folder / "my_module.py")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["my_module", "train"])
def test_workers_and_trials_find_the_working_directory(folder: Path, corpus: str, module: str) -> None:
    """A module that is called as one of our folders, too."""
    (folder / "my_module.py").rename(folder / f"{module}.py")
    for name in (f"{module}.py", "mean.yaml"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace("my_module", module), encoding="utf-8")
    sweep = {
        "base": "mean.yaml",
        "overrides": SMALL,
        "space": {"model.downsampler.rate": {"grid": [2, 4]}},
        "budget": {"steps": 2},
        "reports": 1,
    }
    (folder / "sweep.yaml").write_text(yaml.safe_dump(sweep), encoding="utf-8")
    for command in (
        ["pretrain", "mean.yaml", "--output", "run", "--workers", "2", "--trust-code", *options(SMALL)],
        ["sweep", "sweep.yaml", "--output", "sweep", "--trials", "2", "--trust-code"],
    ):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tokenfree", *command, "--data", corpus],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert f"{module}.MeanPool" in (folder / "sweep" / "best.yaml").read_text(encoding="utf-8")
