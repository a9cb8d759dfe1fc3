"""A flipped bit in any file of an ended run, sweep, embedding or export: readers name the file and write nothing."""

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import tokenfree
from tests.train.conftest import RECIPE
from tests.train.runs.test_hashes import STATE
from tokenfree.core.errors import JobError
from tokenfree.core.settings import build, merge
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.huggingface.folders import import_folder
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import checkpoints
from tokenfree.train.sweep import run as sweep_run
from tokenfree.train.sweep.history import History
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import run_sweep
from tokenfree.train.sweep.search import Proposer, SweepJournal
from tokenfree.workflows import cli
from tokenfree.workflows.report.page import write_report

SMALL = {
    "train": {"steps": 2, "checkpoint_every_steps": 1, "validate_every_steps": 2, "validation_windows": 4}
}
OBJECTIVE = {"objective": {"name": "canine_s"}}
# Arguments of commands, by the folder that they read. DATA, TEXTS and LABELS are undamaged inputs.
READERS = {
    "run": {
        "report": "report run --output page.html",
        "predict": "predict run a[MASK]b",
        "evaluate": "evaluate run --data DATA",
        "analyze": "analyze attention run --data TEXTS",
        "embed": "embed run TEXTS --output out",
        "export": "export run --to huggingface out",
        "pretrain": "pretrain --output run",
        "init-from": "pretrain RECIPE --data DATA --output out --init-from run",
    },
    "finetuned": {
        "report": "report finetuned --output page.html",
        "predict": "predict finetuned wet",
        "evaluate": "evaluate finetuned --data LABELS",
        "embed": "embed finetuned TEXTS --output out",
        "noise": "analyze noise finetuned --data LABELS",
        "finetune": "finetune --output finetuned",
    },
    "imported": {"embed": "embed imported TEXTS --output out", "import": "import export --output imported"},
    "sweep": {"report": "report sweep --output page.html", "sweep": "sweep --output sweep"},
    "vectors": {"inspect": "inspect vectors", "embed": "embed run TEXTS --output vectors"},
    "export": {
        "import": "import export --output out",
        "init-from": "pretrain RECIPE --data DATA --output out --init-from export",
        "analyze": "analyze attention export --data TEXTS",
    },
}


@pytest.fixture(scope="module")
def ended(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an ended one of each kind."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "texts").write_text("Some words.\nAnd a few more.\n")
    (folder / "labels.tsv").write_text("text\tlabel\nrain falls\twet\nthe sun is out\tdry\n" * 2)
    recipe = build(PretrainRecipe, merge(merge(RECIPE, OBJECTIVE), SMALL), source="test")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(to_mapping(recipe)))
    pretrain(recipe, corpus, str(folder / "run"))
    task = merge({**RECIPE, "task": "classification"}, {"train": {"steps": 2, "validate_every_steps": 1}})
    for key in ("streams", "validation_windows"):
        task["train"].pop(key)
    labels = str(folder / "labels.tsv")
    finetune(
        build(FinetuneRecipe, task, source="test"),
        {"train": labels, "dev": labels},
        str(folder / "finetuned"),
    )
    tokenfree.export(folder / "run", folder / "export")
    import_folder(folder / "export", folder / "imported")
    tokenfree.embed(str(folder / "run"), str(folder / "texts"), str(folder / "vectors"))
    space = {"train.learning_rate": {"choice": [0.01, 0.02]}}
    sweep = {"base": to_mapping(recipe), "space": space, "trials": 2, "budget": {"steps": 2}, "reports": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_run, "_run", pretend)
        run_sweep(build(SweepRecipe, sweep, source="test"), corpus, str(folder / "sweep"))
    write_report([str(folder / "sweep")], str(folder / "sweep" / "report.html"))
    return folder


def pretend(proposer: Proposer, planned: History, folder: Path, progress: Any) -> History:
    """Report losses of trials that are not trained."""
    journal = SweepJournal(proposer, planned, folder, lambda event, history: None)
    journal.start()
    while (trial := journal.next_trial()) is not None:
        checkpoints.write(journal.folder(trial.name) / "checkpoints" / "step_00000002", {"model": {}}, STATE)
        journal.report(trial.name, {"report": 1, "step": 2, "validation_loss": 2.5 - trial.setting})
    journal.close()
    return journal.history


def each_damaged(folder: Path) -> Iterator[Path]:
    """Flip one bit of each file in turn."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size):
        content = path.read_bytes()
        place, bit = divmod(random.Random(path.name).randrange(8 * len(content)), 8)
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
        yield path
        path.write_bytes(content)


def contents(folder: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("kind", "reader"), [(kind, reader) for kind, readers in READERS.items() for reader in readers]
)
def test_check_finished_stops_commands(
    kind: str,
    reader: str,
    ended: Path,
    corpus: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ended)
    inputs = {"DATA": corpus, "TEXTS": "texts", "LABELS": "labels.tsv", "RECIPE": "recipe.yaml"}
    command = [inputs.get(word, word) for word in READERS[kind][reader].split()]
    for path in each_damaged(ended / kind):
        before = contents(ended)
        status, message = cli.main(command), capsys.readouterr().err
        assert (status, message.count("\n")) == (1, 1), (path, message)
        assert path.name in message
        assert contents(ended) == before, path


@pytest.mark.parametrize(
    ("kind", "load"),
    [
        ("run", tokenfree.load_encoder),
        ("run", tokenfree.load_predictor),
        ("finetuned", tokenfree.load_finetuned),
        ("imported", tokenfree.load_encoder),
    ],
)
def test_check_finished_stops_python(kind: str, load: Callable[[Path], Any], ended: Path) -> None:
    assert load(ended / kind)
    for path in each_damaged(ended / kind):
        with pytest.raises(JobError, match=path.name):
            load(ended / kind)


def test_check_finished_stops_recipes_of_ended_folders(
    ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (ended / "sweep" / "best.yaml", ended / "run" / "config.yaml"):
        content = path.read_bytes()
        path.write_bytes(content.replace(b"seed: 0", b"seed: 1"))
        assert cli.main(["model", str(path)]) == 1
        assert f"{path}: damaged, its SHA-256 is not that of hashes.json" in capsys.readouterr().err
        path.write_bytes(content)


def test_check_finished_skips_folders_of_other_programs(ended: Path, tmp_path: Path) -> None:
    for path in each_damaged(ended / "export"):
        if path.name == "README.md":
            (ended / "export" / "hashes.json").rename(tmp_path / "hashes.json")
            assert import_folder(ended / "export", tmp_path / "run")
            (tmp_path / "hashes.json").rename(ended / "export" / "hashes.json")
