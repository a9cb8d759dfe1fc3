"""Every task with every kind of encoder: it learns, and what it says of a text depends on no other text."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from tests.train.finetune.conftest import MODELS, MakeTask, splits
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.loop.finetuning import Evaluator, FinetuneJob, TaskFiles
from tokenfree.train.loop.trainer import TrainingLoop
from tokenfree.train.tasks.base import Split
from tokenfree.train.tasks.inputs import text_inputs

TASKS = {
    "texts": ({"name": "classification"}, ""),
    "pooled": ({"name": "classification", "representation": "pooled"}, ""),
    "class_max": ({"name": "classification", "representation": "class_max"}, ""),
    "together": ({"name": "pairs", "representation": "pooled"}, "pairs_"),
    "apart": ({"name": "pairs", "encode": "apart"}, "pairs_"),
    "tags": ({"name": "tagging"}, "tags_"),
}


def loop_of(recipe: FinetuneRecipe, files: Mapping[Split, str], corpus: str) -> TrainingLoop[FinetuneRecipe]:
    """The loop of a recipe whose task takes its labels from the training file."""
    vocabulary = load_vocabulary(corpus) if recipe.model.embedder.symbols == "subwords" else None
    task = recipe.task.fitted(recipe.task.examples("train", files["train"]))
    fitted = FinetuneRecipe(model=recipe.model, task=task, train=recipe.train)
    return FinetuneJob(
        recipe=fitted, files=TaskFiles(files, "0", vocabulary.model if vocabulary else None), run="run"
    ).make_loop()


def is_quick(kind: str, model: str) -> bool:
    """Return True for every task with one model, and every model with one task for texts or for words."""
    return model == "canine" or kind == ("tags" if model == "words" else "texts")


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        pytest.param(kind, model, marks=() if is_quick(kind, model) else pytest.mark.slow)
        for kind in TASKS
        for model in MODELS
    ],
)
def test_it_learns_and_neighbours_have_no_say(
    model: str, kind: str, make_task: MakeTask, files: dict[str, str], corpus: str
) -> None:
    task, prefix = TASKS[kind]
    loop = loop_of(
        make_task(task, model, steps=12, length=160 if model == "words" else 144),
        splits(files, prefix),
        corpus,
    )
    losses = [line["loss"] for line in loop.steps(12)]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-4:]) < losses[0]
    config = loop.recipe
    collator = config.task.collator(text_inputs(config.model, config.train.length, loop.source.vocabulary), 0)
    examples = config.task.examples("dev", splits(files, prefix)["dev"])
    with loop.evaluating():
        together, alone = (
            Evaluator(config.task, collator, examples, micro_batch=size)(loop.model, loop.device)
            for size in (None, 1)
        )
    for one, other in zip(together.predictions, alone.predictions, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=2e-5)
    assert together.loss == pytest.approx(alone.loss, abs=1e-4)
    assert loop.source.validate(loop.model.eval(), loop.device, equally_many=False)["validation_loss"] > 0


@pytest.mark.parametrize("representation", ["pooled", "class_max"])
def test_texts_are_classified_without_the_upsampler(
    representation: str,
    make_task: MakeTask,
    files: dict[str, str],
    corpus: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = loop_of(
        make_task({"name": "classification", "representation": representation}), splits(files), corpus
    )
    monkeypatch.setattr(type(loop.encoder.upsampler), "forward", lambda *_: pytest.fail("upsampled"))
    list(loop.steps(1))
    assert all(parameter.grad is None for parameter in loop.encoder.upsampler.parameters())


def test_dropout_and_order_are_those_of_the_step(
    make_task: MakeTask, files: dict[str, str], corpus: str
) -> None:
    loops = [loop_of(make_task("classification"), splits(files), corpus) for _ in range(2)]
    lines: list[list[float]] = [[], []]
    lines[0].extend(line["loss"] for line in loops[0].steps(6))
    torch.manual_seed(99)
    lines[1].extend(line["loss"] for line in loops[1].steps(3))
    torch.manual_seed(7)
    lines[1].extend(line["loss"] for line in loops[1].steps(6))
    assert lines[0] == lines[1]


def test_the_embedder_has_a_multiple_of_the_rate(
    make_task: MakeTask, files: dict[str, str], corpus: str
) -> None:
    steps = {}
    for factor in (1.0, 10.0):
        recipe = make_task("classification", embedder_rate=factor, warmup=0, learning_rate=1e-4)
        loop = loop_of(recipe, splits(files), corpus)
        before = {name: weight.clone() for name, weight in loop.model.state_dict().items()}
        list(loop.steps(1))
        steps[factor] = {
            name: (weight - before[name]).abs().max() for name, weight in loop.model.state_dict().items()
        }
    for name, step in steps[1.0].items():
        expected = 10 * step if name.startswith("encoder.embedder.") else step
        torch.testing.assert_close(steps[10.0][name], expected, rtol=0.01, atol=1e-6)
