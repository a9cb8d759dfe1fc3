"""Tokenizers of exported folders: for subwords, and `CanineTokenizer` with the padding that `CanineModel` needs.

CANINE's last whole group of characters has no unit (arXiv 2103.06874, section 3.1, and the official code). In
training, padding always followed the text. Without padding, the last characters are not encoded as in
training.

`tokenfree export` writes one of them into a file.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from transformers import CanineTokenizer
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend


class PaddedCanineTokenizer(CanineTokenizer):
    """CANINE's tokenizer, whose examples end with at least `pad_spare` positions of padding, in whole groups.

    This also applies to single texts and to `tokenizer.pad`, which collators call. `padding="max_length"`
    pads to exactly that length. Padding has the attention mask 0. Truncation leaves room for the padding in
    `model_max_length`.

    Args:
        pad_group: Number of characters of a unit, at least 1.
        pad_spare: Number of padding positions after which more padding changes nothing.
        pad_reach: Number of positions that the last convolution reads ahead.
        pad_block: Number of positions of a block of the first layer. If the convolution reads ahead into a
            block that holds only padding, that block must be whole.
        options: Options of `transformers.CanineTokenizer`.
    """

    def __init__(
        self, pad_group: int = 4, pad_spare: int = 6, pad_reach: int = 2, pad_block: int = 128, **options: Any
    ) -> None:
        pad_options = {
            "pad_group": pad_group,
            "pad_spare": pad_spare,
            "pad_reach": pad_reach,
            "pad_block": pad_block,
        }
        # So that they are saved with the others.
        super().__init__(**pad_options, **options)
        self.pad_group, self.pad_spare, self.pad_reach, self.pad_block = (
            pad_group,
            pad_spare,
            pad_reach,
            pad_block,
        )

    def pad(
        self, encoded_inputs: Any, padding: Any = True, max_length: int | None = None, **options: Any
    ) -> Any:
        if padding is True or padding == "longest":
            if isinstance(encoded_inputs, Mapping):
                rows = encoded_inputs["input_ids"]
            else:
                rows = [example["input_ids"] for example in encoded_inputs]
            # A batch; `_pad` handles a single example.
            if len(rows) and np.ndim(rows[0]):
                padding, max_length = "max_length", max(map(self._padded, rows))
        inputs: Any = encoded_inputs
        return super().pad(inputs, padding, max_length, **options)

    def _pad(
        self,
        encoded_inputs: Any,
        max_length: int | None = None,
        padding_strategy: Any = "do_not_pad",
        **options: Any,
    ) -> Any:
        if padding_strategy != "max_length":
            padding_strategy, max_length = "max_length", self._padded(encoded_inputs["input_ids"])
        strategy: Any = padding_strategy
        return super()._pad(encoded_inputs, max_length, strategy, **options)

    def prepare_for_model(
        self,
        ids: Any,
        pair_ids: Any = None,
        add_special_tokens: bool = True,
        padding: Any = False,
        **options: Any,
    ) -> Any:
        strategies = self._get_padding_truncation_strategies(
            padding, options.get("truncation"), options.get("max_length"), verbose=False
        )
        if strategies[1] != "do_not_truncate" and not options.get("return_overflowing_tokens"):
            special = self.num_special_tokens_to_add(pair=pair_ids is not None) if add_special_tokens else 0
            excess = len(ids) + len(pair_ids or []) + special - (self.model_max_length - self.pad_spare)
            ids, pair_ids, _ = self.truncate_sequences(ids, pair_ids, excess, strategies[1])
        return super().prepare_for_model(ids, pair_ids, add_special_tokens, padding, **options)

    def create_token_type_ids_from_sequences(
        self, token_ids_0: Sequence[int], token_ids_1: Sequence[int] | None = None
    ) -> list[int]:
        """Return 1 for the second text and its SEP, else 0. transformers 5 returns 0 for both texts."""
        second = [] if token_ids_1 is None else [1] * (len(token_ids_1) + 1)
        return [0] * (len(token_ids_0) + 2) + second

    def _padded(self, ids: Sequence[int]) -> int:
        """Return the length to which an example must be padded.

        Padding that it already has (zeros) counts.
        """
        nonzero = np.flatnonzero(np.asarray(ids))
        real = int(nonzero[-1]) + 1 if len(nonzero) else 0
        length = _round_up(real + self.pad_spare, self.pad_group)
        # End of the last unit that is read.
        read = _round_up(real + self.pad_reach, self.pad_group)
        if (read - 1) // self.pad_block > (real - 1) // self.pad_block:
            length = max(length, _round_up(_round_up(read, self.pad_block), self.pad_group))
        return max(len(ids), min(length, self.model_max_length))


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


# CANINE's MASK, which no text contains.
HIDDEN = "\ue003"


class SubwordTokenizer(SentencePieceBackend):
    """A tokenizer with the vocabulary of a model's training data.

    CLS, SEP and MASK have the ids after its subwords.
    """

    vocab_files_names = {"vocab_file": "subwords.model"}
    model_input_names = ["input_ids", "token_type_ids", "attention_mask"]

    def tokenize(self, text: str, **options: Any) -> list[str]:
        """Return the visible pieces.

        The text is not split at MASK, because each part would then begin with a space.
        """
        mask = str(self.mask_token)
        pieces = self.sp_model.encode(text.replace(mask, HIDDEN), out_type=str)
        visible = (piece for piece in pieces if piece.strip("\u2581"))
        marked = "\n".join(visible).replace("\n".join(f"<0x{byte:02X}>" for byte in HIDDEN.encode()), HIDDEN)
        return [mask if HIDDEN in piece else piece for piece in marked.split("\n") if piece]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return self.sp_model.decode(tokens)
