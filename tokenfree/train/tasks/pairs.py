"""Pairs of texts: a label, or a number, for each pair, such as whether the first entails the second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.base import Item, Split
from tokenfree.train.tasks.examples.texts import TextExample
from tokenfree.train.tasks.heads import Combine, TextHead
from tokenfree.train.tasks.inputs import TextInputs, WordInputs, measured
from tokenfree.train.tasks.labelled_texts import LabelledCollator, LabelledTexts, TextWindow, too_long

ROUNDING, TIDY = 16, 64  # positions that groups and padding may take, and a multiple that suits all of them


@settings
class Config(LabelledTexts):
    """Pairs of texts with a label each.

    Attributes:
        encode: `together`: [CLS] first [SEP] second [SEP], the second in segment 1; `apart`: each by itself, and
            features of their two vectors are classified.
        combine: the last of the features [r1, r2, |r1 - r2|, ...] of `apart`: `difference`, r1 - r2, as the multi-scale
            Transformer has it, or `product`, r1 * r2.
    """

    name: Literal["pairs"] = "pairs"
    encode: Literal["together", "apart"] = "together"
    combine: Combine = "difference"

    def check(self, model: ModelConfig, length: int) -> list[str]:
        """The problems of the settings, and of an embedder that cannot tell two segments apart."""
        segments = getattr(model.embedder, "segments", 2)
        problems = super().check(model, length)
        if self.encode == "together" and segments == 1:
            problems.append("model.embedder.segments: 1 is too few for pairs; set it to 2, or task.encode to apart")
        return problems

    def examples(self, split: Split, path: str | None) -> Sequence[TextExample]:
        """See `DownstreamTask.examples`.

        Raises:
            UserError: see `read_texts`; or there are no pairs.
        """
        found = super().examples(split, path)
        if found[0].second is None:
            raise UserError(
                f"{path}: there are no pairs of texts; name their columns as task.text_column and task.second_column"
            )
        return found

    def raw(self, key: str, text: str) -> TextExample:
        """Two texts with a tab between.

        Raises:
            UserError: there is none, or more than one.
        """
        texts = text.split("\t")
        if len(texts) != 2:
            raise UserError(f"{key}: a pair is two texts with a tab between; there are {len(texts)}")
        first, second = texts
        return TextExample(key, first, second)

    def build(self, model: ModelConfig) -> TextHead:
        """The head."""
        return self.build_head(model, combine=self.combine if self.encode == "apart" else None)

    def collator(self, inputs: TextInputs, seed: int) -> TextPairCollator:
        return TextPairCollator(self, inputs)


class TextPairCollator(LabelledCollator):
    """Pairs to arrays; see `LabelledCollator`."""

    def __init__(self, task: Config, inputs: TextInputs) -> None:
        super().__init__(task, inputs, two_vectors=task.encode == "apart")
        self._apart = task.encode == "apart"

    def items(self, examples: Sequence[TextExample], *, training: bool) -> list[Item]:
        """See `TaskCollator.items`.

        Raises:
            UserError: a pair is too long.
        """
        found = [self._measured(example) for example in examples]
        if any(missing for _, missing in found):
            raise self._too_long(examples, [missing for _, missing in found])
        return [
            Item(number, size, TextWindow(example))
            for number, (example, (size, _)) in enumerate(zip(examples, found, strict=True))
        ]

    def _measured(self, example: TextExample) -> tuple[int, int]:
        """The positions that a pair takes, and how many are missing."""
        parts = [measured(self.inputs.chunks(*each)) for each in self.texts(example)]
        inputs = [[part] for part in parts] if self._apart else [parts]
        return sum(map(self.inputs.size, inputs)), max(map(self.inputs.missing, inputs))

    def _too_long(self, examples: Sequence[TextExample], missing: Sequence[int]) -> UserError:
        most, count = max(missing), sum(map(bool, missing))
        enough = -(-(self.inputs.length + most + ROUNDING) // TIDY) * TIDY
        larger = "larger" if self.inputs.symbols == WordInputs.symbols else f"larger, such as {enough}"
        many, them = (f"{count} are too long, this one the most: ", "them") if count > 1 else ("", "it")
        remedy = f"{many}make train.length {larger}, or leave {them} out"
        return too_long(examples[missing.index(most)].key, most, self.inputs.symbols, remedy)
