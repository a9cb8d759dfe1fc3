"""Tokenizers of exported folders: of subwords, and `CanineTokenizer` with the padding that `CanineModel` needs.

CANINE's last whole group of characters has no unit (arXiv 2103.06874, section 3.1, and the official code), so in an
input without padding the last characters are not read as they were in training, where padding always followed. This
tokenizer adds the padding that is missing, and tells the second text of a pair by its segment, 1. This file is copied
into the exported folder, where `AutoTokenizer.from_pretrained(FOLDER, trust_remote_code=True)` finds it; it imports
nothing but transformers and numpy.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from transformers import CanineTokenizer
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend


class PaddedCanineTokenizer(CanineTokenizer):
    """CANINE's tokenizer, whose examples end with at least `pad_spare` positions of padding, in whole groups.

    That holds for one text without padding, for `padding=True` or "longest", and for `tokenizer.pad`, as collators call
    it. `padding="max_length"` pads to just that length. Padding has the attention mask 0. Truncation leaves room for
    the padding in `model_max_length`.

    Args:
        pad_group: characters of a unit, at least 1.
        pad_spare: positions of padding that make any more of it change nothing.
        pad_reach: positions that the last convolution reads ahead.
        pad_block: positions that see each other in the first layer. Where the convolution reads ahead into a block of
            nothing but padding, whose vectors depend on how much of it there is, that block has to be whole.
        options: those of `transformers.CanineTokenizer`.
    """

    def __init__(
        self, pad_group: int = 4, pad_spare: int = 6, pad_reach: int = 2, pad_block: int = 128, **options: Any
    ) -> None:
        own = {"pad_group": pad_group, "pad_spare": pad_spare, "pad_reach": pad_reach, "pad_block": pad_block}
        super().__init__(**own, **options)  # so that they are saved with the others
        self.pad_group, self.pad_spare, self.pad_reach, self.pad_block = pad_group, pad_spare, pad_reach, pad_block

    def pad(self, encoded_inputs: Any, padding: Any = True, max_length: int | None = None, **options: Any) -> Any:
        """See transformers; the longest example of a batch is padded, too."""
        if padding is True or padding == "longest":
            if isinstance(encoded_inputs, Mapping):
                rows = encoded_inputs["input_ids"]
            else:
                rows = [example["input_ids"] for example in encoded_inputs]
            if len(rows) and np.ndim(rows[0]):  # else it is one example, for `_pad`
                padding, max_length = "max_length", max(map(self._padded, rows))
        given: Any = encoded_inputs
        return super().pad(given, padding, max_length, **options)

    def _pad(
        self, encoded_inputs: Any, max_length: int | None = None, padding_strategy: Any = "do_not_pad", **options: Any
    ) -> Any:
        """One example; without a length for it, it gets the padding that it needs by itself."""
        if padding_strategy != "max_length":
            padding_strategy, max_length = "max_length", self._padded(encoded_inputs["input_ids"])
        strategy: Any = padding_strategy
        return super()._pad(encoded_inputs, max_length, strategy, **options)

    def prepare_for_model(
        self, ids: Any, pair_ids: Any = None, add_special_tokens: bool = True, padding: Any = False, **options: Any
    ) -> Any:
        """See transformers; where an example is cut, it is cut so that the padding fits into the model, too."""
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
        """0 for CLS, the first text and its SEP, 1 for the second text and its SEP; transformers 5 has 0 throughout."""
        second = [] if token_ids_1 is None else [1] * (len(token_ids_1) + 1)
        return [0] * (len(token_ids_0) + 2) + second

    def _padded(self, ids: Sequence[int]) -> int:
        """The length to which an example has to be padded; padding that it has already, which is 0, counts."""
        found = np.flatnonzero(np.asarray(ids))
        real = int(found[-1]) + 1 if len(found) else 0
        length = _round_up(real + self.pad_spare, self.pad_group)
        read = _round_up(real + self.pad_reach, self.pad_group)  # up to the end of the last unit that is read
        if (read - 1) // self.pad_block > (real - 1) // self.pad_block:
            length = max(length, _round_up(_round_up(read, self.pad_block), self.pad_group))
        return max(len(ids), min(length, self.model_max_length))


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


HIDDEN = "\ue003"  # CANINE's MASK, which no text holds


class SubwordTokenizer(SentencePieceBackend):
    """The subwords of a model's training data; CLS, SEP and MASK have the ids behind those of the vocabulary."""

    vocab_files_names = {"vocab_file": "subwords.model"}
    model_input_names = ["input_ids", "token_type_ids", "attention_mask"]

    def tokenize(self, text: str, **options: Any) -> list[str]:
        """Return the pieces with a visible part, as in training.

        The text is read whole, with a character for each MASK: a part alone would begin with a space.
        """
        mask = str(self.mask_token)
        pieces = self.sp_model.encode(text.replace(mask, HIDDEN), out_type=str)
        visible = (piece for piece in pieces if piece.strip("\u2581"))
        marked = "\n".join(visible).replace("\n".join(f"<0x{byte:02X}>" for byte in HIDDEN.encode()), HIDDEN)
        return [mask if HIDDEN in piece else piece for piece in marked.split("\n") if piece]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return self.sp_model.decode(tokens)
