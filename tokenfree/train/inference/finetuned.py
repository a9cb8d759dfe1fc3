"""A fine-tuned model for any text: `model = load_finetuned("RUN")`, then `model(["a text"])[0]["label"]`."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, expand_home
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.loop.finetuning import Evaluated, Evaluator
from tokenfree.train.loop.step import ModelWithHead
from tokenfree.train.runs.checkpoints import Checkpoint
from tokenfree.train.runs.config import read_finetuned
from tokenfree.train.runs.run import Run, checkpoint_of
from tokenfree.train.tasks.base import DownstreamTask
from tokenfree.train.tasks.examples.noise import IN_WORDS, Noise, reads_words
from tokenfree.train.tasks.inputs import text_inputs
from tokenfree.train.torch_state import default_settings, inference_precision, matrix_precision


class FinetunedModel:
    """A model with the head of its task, in evaluation mode. The task of `recipe` is fitted."""

    def __init__(
        self,
        recipe: FinetuneRecipe,
        checkpoint: Checkpoint,
        vocabulary: Vocabulary | None,
        device: str = "cpu",
    ) -> None:
        self.recipe, self.checkpoint = recipe, checkpoint
        self.task: DownstreamTask = recipe.task
        self._device = torch.device(device)
        self._collator = self.task.collator(text_inputs(recipe.model, recipe.train.length, vocabulary), 0)
        self.model = checkpoint.built(
            lambda: ModelWithHead(recipe.model.build(), self.task.build(recipe.model)), checkpoint.weights()
        ).to(self._device)

    def __repr__(self) -> str:
        return f"FinetunedModel(task={self.task.name}, step={self.checkpoint.step})"

    @default_settings()
    def __call__(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the prediction for each text: a line of RUN/predictions without `key`.

        For pairs, each text is two texts with a tab between them. Raises UserError if a text does not fit the
        task, or it is too long and the task does not cut it.
        """
        if isinstance(texts, str) or not texts:
            raise UserError(f"texts={texts!r}: no list. Give a list of at least one text.")
        examples = [self.task.raw(f"text {number}", text) for number, text in enumerate(texts, 1)]
        predictions = self.evaluate_examples(examples).predictions
        return [
            {name: value for name, value in prediction.items() if name != "key"} for prediction in predictions
        ]

    @default_settings()
    def evaluate(self, path: AnyPath | None, noise: Noise | None = None) -> Evaluated:
        """Return the predictions for the examples of a file and, if it has the correct answers, the scores.

        `path` is None if the task generates its examples. `noise` replaces the noise of the run.

        Raises UserError if the file is invalid, or the task or the model does not support the noise.
        """
        return self.evaluate_examples(self.examples(path, noise))

    def examples(self, path: AnyPath | None, noise: Noise | None = None) -> Sequence[Any]:
        """Return the examples of `evaluate`.

        Raises UserError if the file is invalid or the noise not supported.
        """
        task: Any = self.task
        if noise is not None:
            if not isinstance(getattr(task, "noise", None), Noise):
                raise UserError(f"{task.name} takes no noise, which would move its answers. Leave it out.")
            if noise.evaluation == IN_WORDS and not reads_words(self.recipe.model):
                raise UserError(
                    f"noise {IN_WORDS} is for models of words, which this is none of. Give random_case."
                )
            task = dataclasses.replace(task, noise=noise)
        if path is None and task.needs_files:
            raise UserError(f"--data is missing. Give a file of examples for {task.name}.")
        return task.examples("test", None if path is None else expand_home(path))

    @default_settings()
    def evaluate_examples(self, examples: Sequence[Any]) -> Evaluated:
        """Return the predictions for examples of the task and, if they have the correct answers, the scores.

        Raises UserError if an example is longer than the model reads, and the task does not cut it.
        """
        evaluator = Evaluator(self.task, self._collator, examples, micro_batch=self.recipe.train.micro_batch)
        with matrix_precision(inference_precision(self.recipe.train.precision), self._device):
            return evaluator(self.model, self._device)


@default_settings()
def load_finetuned(
    run: AnyPath, *, step: int | None = None, device: str = "cpu", trust_code: bool = False
) -> FinetunedModel:
    """Return the model of a fine-tuning run from its best checkpoint, or from the newest intact one while it is
    training.

    Args:
        run: Path or address of the run.
        step: Step of the checkpoint to use instead.
        device: Device of the model, such as "cpu" or "cuda:0".
        trust_code: Whether to run code outside tokenfree that the run names.

    Raises UserError if there is no such run, it has no checkpoint, or it is a pretraining run. Raises
    JobError if the best checkpoint is damaged.
    """
    recipe = read_finetuned(run, trust_code=trust_code).recipe
    checkpoint = checkpoint_of(run, step, best=True)
    vocabulary = load_vocabulary(Run(run).name) if recipe.model.embedder.symbols == "subwords" else None
    return FinetunedModel(recipe, checkpoint, vocabulary, device)
