"""Pairs of texts: each pair has a class, such as whether the first entails the second, or a number."""

from collections.abc import Iterable, Sequence
from typing import Literal

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.base import Item, Split
from tokenfree.train.tasks.examples.texts import TextExample
from tokenfree.train.tasks.heads import Combine, TextHead
from tokenfree.train.tasks.inputs import TextInputs
from tokenfree.train.tasks.labelled_texts import LabelledCollator, LabelledTexts, TextWindow


@settings
class Config(LabelledTexts):
    """Pairs of texts with one label each.

    Attributes:
        encode: `together`: encode [CLS] first [SEP] second [SEP], the second in segment 1; `apart`: encode
            each text alone and classify features of both vectors.
        combine: last of the features [r1, r2, |r1 - r2|, ...] of `apart`. `difference`: r1 - r2, as in the
            multi-scale Transformer; `product`: r1 * r2.
    """

    name: Literal["pairs"] = "pairs"
    encode: Literal["together", "apart"] = "together"
    combine: Combine = "difference"

    def check(self, model: ModelConfig, length: int) -> Iterable[str]:
        yield from super().check(model, length)
        if self.encode == "together" and getattr(model.embedder, "segments", 2) == 1:
            yield "model.embedder.segments: 1 is too few for pairs; set it to 2, or task.encode to apart"

    def examples(self, split: Split, path: str) -> Sequence[TextExample]:
        table = super().examples(split, path)
        if table[0].second is None:
            raise UserError(
                f"{path}: there are no pairs of texts. Name their columns as task.text_column and task.second_column."
            )
        return table

    def raw(self, key: str, text: str) -> TextExample:
        texts = text.split("\t")
        if len(texts) != 2:
            raise UserError(f"{key}: {len(texts)} texts are not a pair. Give two texts with a tab between.")
        return TextExample(key, texts[0], texts[1])

    def build(self, model: ModelConfig) -> TextHead:
        return super().build(model, self.combine if self.encode == "apart" else None)

    def collator(self, inputs: TextInputs, seed: int) -> "TextPairCollator":
        return TextPairCollator(self, inputs, two_vectors=self.encode == "apart")


class TextPairCollator(LabelledCollator):
    def items(self, examples: Sequence[TextExample], *, training: bool) -> list[Item]:
        items = list[Item]()
        for number, example in enumerate(examples):
            parts = [self.inputs.encode(*arguments) for arguments in self.texts(example)]
            inputs = [[part] for part in parts] if self.two_vectors else [parts]
            if missing := max(map(self.inputs.missing, inputs)):
                raise UserError(
                    f"{example.key}: this pair is {missing} {self.inputs.symbols} longer than the model reads at once. "
                    "Increase train.length, or leave the pair out."
                )
            items.append(Item(number, sum(map(self.inputs.size, inputs)), TextWindow(example)))
        return items
