"""Text classification: each text has a class or a number. Long texts are read in overlapping windows."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings
from tokenfree.train.tasks.base import Item, Split
from tokenfree.train.tasks.examples.texts import TextExample
from tokenfree.train.tasks.inputs import TextInputs, compact, cut
from tokenfree.train.tasks.labelled_texts import LabelledCollator, LabelledTexts, TextWindow


@settings
class Config(LabelledTexts):
    """Texts with one label each.

    Attributes:
        stride: distance between the starts of successive windows of a long text, as a share of a full window.
    """

    name: Literal["classification"] = "classification"
    stride: Annotated[float, Field(gt=0, le=1)] = 0.5

    def examples(self, split: Split, path: str) -> Sequence[TextExample]:
        table = super().examples(split, path)
        if table[0].second is not None:
            raise UserError(
                f"{path}: there are pairs of texts. Set task.name to pairs, or name a task.text_column."
            )
        return table

    def raw(self, key: str, text: str) -> TextExample:
        return TextExample(key, text)

    def collator(self, inputs: TextInputs, seed: int) -> "ClassificationCollator":
        return ClassificationCollator(self, inputs)


class ClassificationCollator(LabelledCollator):
    def __init__(self, task: Config, inputs: TextInputs) -> None:
        super().__init__(task, inputs)
        self._stride = task.stride

    def items(self, examples: Sequence[TextExample], *, training: bool) -> list[Item]:
        items = list[Item]()
        for number, example in enumerate(examples):
            (arguments,) = self.texts(example)
            text = self.inputs.encode(*arguments)
            if not self.inputs.missing([text]):
                items.append(Item(number, self.inputs.size([text]), TextWindow(example)))
            else:
                for part in cut(self.inputs, text, self._stride):
                    window = TextWindow(example, compact(part), part.num_characters)
                    items.append(Item(number, self.inputs.size([part]), window))
        return items
