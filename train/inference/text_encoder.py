"""A trained encoder for any text: `encoder = load_encoder("RUN")`, then `encoder(["any text", "日本語"]).pooled`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from preprocess.errors import UserError
from train.averaging import weights_in_use
from train.inference_words import encode_words, words_of_texts
from train.model import Encoder, check
from train.objectives.framing import frame
from train.objectives.word_framing import room_for_words
from train.run_folder import read_config, run_at


class Encoded(NamedTuple):
    """Vectors of some texts.

    `characters` is float [texts, positions, width]: CLS, the characters, SEP, then padding up to the longest text;
    `mask` is bool [texts, positions], false for padding; `pooled` is float [texts, width].

    Models of words give each character the vector of its word, and white space, which is in none, zeros and a false
    mask. Their vectors themselves are `words`, float [texts, words, width]: CLS, the words of
    `preprocess.words.word_spans`, SEP, then padding, where `word_mask`, bool [texts, words], is false.
    """

    characters: Tensor
    mask: Tensor
    pooled: Tensor
    words: Tensor | None = None
    word_mask: Tensor | None = None


class TextEncoder:
    """An encoder in evaluation mode, called with a list of texts; `encoder` is the module itself.

    Texts are read as they are, a vector for each codepoint. Training saw text in NFC
    (`preprocess.normalize.normalize`), so other forms may be encoded less well. `max_characters` is how many always
    fit.
    """

    def __init__(self, encoder: Encoder, *, length: int) -> None:
        self.encoder = encoder.eval()
        self._length = length
        self._spare = max(encoder.downsampler.min_characters + 2, 6)  # with so much padding, more changes nothing
        self.max_characters = length - 2 - self._spare

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Encoded:
        """Encode all texts as one batch.

        Raises:
            UserError: a text is longer than the model reads, or there is none.
        """
        if isinstance(texts, str) or not texts:
            raise UserError(f"give a list of at least one text, not {texts!r}")
        return self._encode(texts)

    def _encode(self, texts: Sequence[str]) -> Encoded:
        symbols = getattr(self.encoder.config.embedder, "symbols", "characters")
        if symbols != "characters":
            raise UserError(f"this model reads {symbols}, not texts; give their ids to `encoder.encoder` itself")
        longest = max(range(len(texts)), key=lambda index: len(texts[index]))
        if len(texts[longest]) > self.max_characters:
            raise UserError(
                f"text {longest} has {len(texts[longest])} characters and this model reads {self.max_characters}; "
                "cut it into parts"
            )
        windows = [np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32) for text in texts]
        ends = np.array([len(window) for window in windows])
        positions = int(ends.max()) + 2
        codepoints, mask = frame(windows, np.zeros_like(ends), ends, self._padded(positions))
        device = self.encoder.pooler.weight.device
        mask_BC = torch.from_numpy(mask).to(device)
        output = self.encoder(torch.from_numpy(codepoints).to(device), mask_BC)
        return Encoded(output.characters[:, :positions], mask_BC[:, :positions], output.pooled)

    def _padded(self, positions: int) -> int:
        """The shortest input with room for `positions` and the spare that the model's parts accept."""
        lengths = range(positions + self._spare, self._length + 1)
        return next(length for length in lengths if not check(self.encoder.config, length))


class WordEncoder(TextEncoder):
    """A `TextEncoder` of words of bytes, such as Byte2Word; what served the prediction of subwords is not used."""

    def __init__(self, encoder: Encoder, *, length: int) -> None:
        super().__init__(encoder, length=length)
        self._num_words, self._num_bytes = room_for_words(length, encoder.config.downsampler.bytes_per_word)
        self.max_characters = min(self._num_words, self._num_bytes // 4)

    def _encode(self, texts: Sequence[str]) -> Encoded:
        found = words_of_texts(texts)
        counts, sizes = found.words.counts, found.words.num_bytes
        for number, (count, size) in enumerate(zip(counts.tolist(), sizes.tolist(), strict=True)):
            if count > self._num_words or size > self._num_bytes:
                raise UserError(
                    f"text {number} has {count} words of {size} bytes and this model reads {self._num_words} of "
                    f"{self._num_bytes}; cut it into parts"
                )
        return Encoded(*encode_words(self.encoder, found))


def load_encoder(run: str | Path, *, device: str = "cpu") -> TextEncoder:
    """The encoder of the newest sound checkpoint of a run, with the average of its weights where it has one.

    Raises:
        UserError: there is no such run, or it has no sound checkpoint.
    """
    recipe = read_config(run).recipe
    damaged: list[str] = []
    checkpoint = run_at(run).newest(damaged.append)
    if checkpoint is None:
        raise UserError(f"{run} has no sound checkpoint; " + ("; ".join(damaged) or "train it first"))
    with torch.random.fork_rng():  # fresh weights are drawn, then overwritten
        encoder = recipe.model.build()
    prefix = "encoder."
    tensors = weights_in_use(checkpoint)
    encoder.load_state_dict({name[len(prefix) :]: tensors[name] for name in tensors if name.startswith(prefix)})
    reads_words = getattr(recipe.objective, "words", None) == "rules"
    return (WordEncoder if reads_words else TextEncoder)(encoder.to(device), length=recipe.train.length)
