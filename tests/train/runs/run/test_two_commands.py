"""Two commands that write to one place: the second is refused in one line, or what stands there is right."""

import contextlib
import json
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.conftest import RECIPE
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings import build, merge
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs.run import Run
from tokenfree.workflows import cli
from tokenfree.workflows.work.analyze import write_analysis

HELD = "another command writes into it. Wait for it or give another output"
# A command, and what it calls while it writes.
COMMANDS = {
    "embed": (["embed", "RUN", "texts", "--output", "out"], "train.inference.embed.commit", HELD),
    "huggingface": (
        ["export", "RUN", "--to", "huggingface", "out"],
        "train.huggingface.exported_folder._write_tokenizer",
        HELD,
    ),
    "onnx": (["export", "RUN", "--to", "onnx", "out"], "train.huggingface.onnx.write_graph", HELD),
    "report": (
        ["report", "RUN", "--output", "out/page.html"],
        "workflows.report.page.render",
        "another report is",
    ),
    "import": (
        ["import", "WEIGHTS", "--output", "out"],
        "train.runs.checkpoints.write",
        "is being trained by another",
    ),
}


@pytest.fixture(scope="module")
def made(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and its weights as a folder of transformers."""
    folder = tmp_path_factory.mktemp("made")
    over = {"objective": {"name": "canine_s"}, "train": {"steps": 1}}
    pretrain(build(PretrainRecipe, merge(RECIPE, over), source="test"), corpus, str(folder / "run"))
    assert cli.main(["export", str(folder / "run"), "--to", "huggingface", str(folder / "weights")]) == 0
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_the_second_command_is_refused(
    name: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given, called, refusal = COMMANDS[name]
    command = [{"RUN": str(made / "run"), "WEIGHTS": str(made / "weights")}.get(word, word) for word in given]
    monkeypatch.chdir(tmp_path)
    Path("texts").write_text("Some words.\nAnd a few more.\n")
    folder, _, function = f"tokenfree.{called}".rpartition(".")
    module = __import__(folder, fromlist=[function])
    write_it, refused = getattr(module, function), []

    def write_while_another_comes(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(module, function, write_it)
        refused.append((cli.main(command), capsys.readouterr().err))
        raise JobError("it ends here, which saves seconds")

    monkeypatch.setattr(module, function, write_while_another_comes)
    assert cli.main(command) == 1
    ((status, said),) = refused
    assert status == 2
    assert refusal in said
    assert said.count("\n") == 1
    assert not [path for path in (*Path().glob("*lock"), *Path("out").glob("*lock")) if path.name != "lock"]


def test_a_run_that_another_command_began_meanwhile_is_looked_at_again(
    corpus: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claimed = Run.claimed

    @contextlib.contextmanager
    def claimed_a_moment_later(run: Run) -> Iterator[str | None]:
        config = run.folder / "config.yaml"
        config.write_text(config.read_text().replace("steps: 1\n", "steps: 2\n"))
        with claimed(run) as number:
            yield number

    monkeypatch.setattr(Run, "claimed", claimed_a_moment_later)
    recipe = build(PretrainRecipe, merge(RECIPE, {"train": {"steps": 1}}), source="test")
    with pytest.raises(UserError, match=r"train\.steps is 1, was 2"):
        pretrain(recipe, corpus, str(tmp_path / "run"))


def _analysis(text: str, path: str) -> None:
    write_analysis({"rows": [], "text": text}, path)


def _again_and_again(write_it: Callable[[str, str], None], text: str, path: str) -> None:
    for _ in range(200):
        write_it(text, path)


def test_a_file_that_two_commands_write_is_whole(tmp_path: Path) -> None:
    path, torch_threads = tmp_path / "found.json", torch.get_num_threads()
    torch.set_num_threads(1)
    texts = ["a" * 100_000, "b" * 50_000]
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_again_and_again, args=(_analysis, text, str(path))) for text in texts]
    for each in both:
        each.start()
    for each in both:
        each.join()
    torch.set_num_threads(torch_threads)
    assert [each.exitcode for each in both] == [0, 0]
    assert json.loads(path.read_text())["text"] in texts
    assert list(tmp_path.iterdir()) == [path]
