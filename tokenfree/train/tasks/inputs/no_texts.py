"""The inputs of a model that reads vectors of numbers: none can be made of a text."""

from __future__ import annotations

from typing import Any

from tokenfree.preprocess.common.errors import UserError


class NoTexts:
    """See `tokenfree.train.tasks.inputs.text_inputs.TextInputs`, of which it refuses everything.

    Args:
        embedder: the name of the model's.
        length: the most positions of an input.
    """

    symbols = "vectors"

    def __init__(self, embedder: str, length: int) -> None:
        self._embedder, self.length = embedder, length

    def _refuse(self, *given: object, **named: object) -> Any:
        raise UserError(
            f"model.embedder.name: {self._embedder} reads vectors, which texts have none of; choose another embedder, "
            "or task.name: mirrored_summation"
        )

    encode = chunks = missing = size = fitting = arrays = offsets = _refuse
