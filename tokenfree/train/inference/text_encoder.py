"""A trained encoder for any text: `encoder = load_encoder("RUN")`, then `encoder(["any text", "日本語"]).pooled`."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath
from tokenfree.preprocess.text.characters import codepoints_of
from tokenfree.train.batches.base import frame
from tokenfree.train.batches.words import (
    NOWHERE,
    NUM_FRAME,
    frame_words,
    join_words,
    text_words,
    word_capacity,
)
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.model.common.basic import gather_rows
from tokenfree.train.model.encoder import Encoder, mean_of_text
from tokenfree.train.runs.checkpoints import Checkpoint
from tokenfree.train.runs.config import read_any_config
from tokenfree.train.runs.run import checkpoint_of
from tokenfree.train.tasks.inputs import Padding
from tokenfree.train.torch_state import default_settings


class Encoded(NamedTuple):
    """Embeddings of some texts.

    `characters` is float [texts, positions, width]: CLS, the characters, SEP, then padding up to the longest
    text. `mask` is bool [texts, positions], false for padding. `cls` is float [texts, width], the unit of
    CLS.

    `pooled`, float [texts, width], is tanh of a dense layer on `cls`. Only next-sentence prediction and
    fine-tuning on text labels train that layer; `pooled_is_trained` is then true. In other runs it is a
    random projection.

    Models of words give each character the vector of its word. White space gets zeros and a false mask.
    `words`, float [texts, words, width], are CLS, the words of `tokenfree.preprocess.text.words.word_spans`,
    SEP, then padding, where `word_mask`, bool [texts, words], is false.
    """

    characters: Tensor
    mask: Tensor
    pooled: Tensor
    cls: Tensor
    words: Tensor | None = None
    word_mask: Tensor | None = None
    pooled_is_trained: bool = False

    @property
    def mean(self) -> Tensor:
        """Mean of the vectors of each text's characters, float [texts, width]; the vector of CLS for an empty text."""
        return mean_of_text(self.characters, self.mask)

    @property
    def cls_max(self) -> Tensor:
        """CLS, then the maxima over it and the characters, float [texts, 2 * width] (arXiv 1912.00544, section 3.2)."""
        inner = self.mask & (self.mask.flip(1).cumsum(1).flip(1) > 1)
        largest = self.characters.masked_fill(~inner[..., None], -torch.inf).amax(dim=1)
        return torch.cat([self.cls, largest], dim=1)

    def __repr__(self) -> str:
        shapes = (
            f"{name}={list(value.shape)}"
            for name, value in self._asdict().items()
            if isinstance(value, Tensor)
        )
        return f"Encoded({', '.join(shapes)})"


class TextEncoder:
    """An encoder in evaluation mode, called with a list of texts. `encoder` is the module itself.

    Texts are read unchanged, with one vector per codepoint. Training text is in NFC, so other forms may be
    encoded less well. Padding makes the vectors independent of other texts in the batch.

    Args:
        length: Positions per example in training.

    Attributes:
        checkpoint: The checkpoint that `load_encoder` read the weights from.
        max_characters: Number of characters that always fit into an input.
    """

    checkpoint: Checkpoint | None = None

    def __init__(self, encoder: Encoder, *, length: int, pooled_is_trained: bool = False) -> None:
        self.encoder = encoder.eval()
        self.pooled_is_trained = pooled_is_trained
        self.padding = Padding(encoder.config, length)
        self.length = self.padding.length
        self.max_characters = self.length - 2 - self.padding.spare

    def __repr__(self) -> str:
        step = "" if self.checkpoint is None else f", step={self.checkpoint.step}"
        return f"{type(self).__name__}(width={self.encoder.config.width}, max_characters={self.max_characters}{step})"

    @default_settings()
    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> Encoded:
        """Return the embeddings of all texts.

        Raises UserError if there are none, or one is too long for the model.
        """
        if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
            raise UserError(f"texts={texts!r}: no list. Give a list of at least one text.")
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(
                    f"texts[{number}]: should be a str, not {type(text).__name__}. Give a list of texts."
                )
        return self._encode(texts)._replace(pooled_is_trained=self.pooled_is_trained)

    def _encode(self, texts: Sequence[str]) -> Encoded:
        symbols = self.encoder.config.embedder.symbols
        if symbols != "characters":
            raise UserError(f"this model reads {symbols}, not texts. Give their ids to `encoder.encoder`.")
        longest = max(range(len(texts)), key=lambda index: len(texts[index]))
        if len(texts[longest]) > self.max_characters:
            raise UserError(
                f"text {longest} has {len(texts[longest])} characters and this model reads {self.max_characters}. "
                "Cut it into parts."
            )
        windows = [codepoints_of(text) for text in texts]
        ends = np.array([len(window) for window in windows])
        positions = int(ends.max()) + 2
        codepoints, mask = frame(windows, np.zeros_like(ends), ends, self.padding.padded((ends + 2).tolist()))
        device = self.encoder.pooler.weight.device
        mask_BC = torch.from_numpy(mask).to(device)
        output = self.encoder(torch.from_numpy(codepoints).to(device), mask_BC)
        return Encoded(
            output.characters[:, :positions], mask_BC[:, :positions], output.pooled, output.units[:, 0]
        )


class WordEncoder(TextEncoder):
    """A `TextEncoder` for models of words of bytes, such as Byte2Word.

    It does not use UP, which predicted subwords.
    """

    def __init__(self, encoder: Encoder, *, length: int, pooled_is_trained: bool = False) -> None:
        super().__init__(encoder, length=length, pooled_is_trained=pooled_is_trained)
        self._num_words, self._num_bytes = word_capacity(length, encoder.config.downsampler.bytes_per_word)
        self.max_characters = min(self._num_words, self._num_bytes // 4)

    def _encode(self, texts: Sequence[str]) -> Encoded:
        # B texts, C characters with CLS and SEP, U words with CLS and SEP, D width
        utf8, starts, ends, word_of = zip(*map(text_words, texts), strict=True)
        words = join_words(utf8, starts, ends)
        for number, (count, size) in enumerate(
            zip(words.counts.tolist(), words.num_bytes.tolist(), strict=True)
        ):
            if count > self._num_words or size > self._num_bytes:
                raise UserError(
                    f"text {number} has {count} words of {size} bytes and this model reads {self._num_words} of "
                    f"{self._num_bytes}. Cut it into parts."
                )
        room = (int(words.num_bytes.max()) + NUM_FRAME, int(words.counts.max()) + NUM_FRAME)
        framed = frame_words(words.text, words.starts, words.sizes, words.counts, *room)
        device = self.encoder.pooler.weight.device
        codepoints_BC, mask_BC, unit_ends_BU = (torch.from_numpy(array).to(device) for array in framed)
        down, units_BUD = self.encoder.encode(codepoints_BC, mask_BC, unit_ends_BU=unit_ends_BU)

        unit = np.full((len(texts), max(map(len, word_of)) + NUM_FRAME), NOWHERE)
        for line, row, count in zip(unit, word_of, words.counts.tolist(), strict=True):
            line[0], line[len(row) + 1] = 0, count + 1
            line[1 : len(row) + 1] = np.where(row == NOWHERE, NOWHERE, row + 1)
        unit_BC = torch.from_numpy(unit).to(device)
        has_unit_BC = unit_BC != NOWHERE
        characters_BCD = gather_rows(units_BUD, unit_BC.clamp(min=0)) * has_unit_BC[..., None]
        words_BUD = units_BUD * down.valid_BU[..., None]
        pooled = self.encoder.pool(units_BUD)
        return Encoded(characters_BCD, has_unit_BC, pooled, words_BUD[:, 0], words_BUD, down.valid_BU)


@default_settings()
def load_encoder(
    run: AnyPath, *, step: int | None = None, device: str = "cpu", trust_code: bool = False
) -> TextEncoder:
    """Return the encoder of a run, with averaged weights if the run has them. `checkpoint_of` chooses the checkpoint.

    A run of classification or of pairs does not train UP. What it learned is in `cls`, in `pooled` if
    `pooled_is_trained` is true, and in `words` for models of words; `mean` and `cls_max` use the initial UP.

    Args:
        run: Path or address of the run.
        step: Step of the checkpoint to use instead.
        device: Device of the encoder, such as "cpu" or "cuda:0".
        trust_code: Whether to run code outside tokenfree that the run names.

    Raises UserError if there is no such run, it has no checkpoint, or it names code that is not trusted.
    Raises JobError if the checkpoint is damaged.
    """
    recipe = read_any_config(run, trust_code=trust_code).recipe
    is_finetuned = isinstance(recipe, FinetuneRecipe)
    pooled_is_trained = recipe.task.trains_pooled if is_finetuned else recipe.objective.next_sentence
    has_words = recipe.model.downsampler.bytes_per_word is not None
    gives_words = has_words if is_finetuned else recipe.objective.gives_words
    checkpoint = checkpoint_of(run, step, best=is_finetuned)
    prefix = "encoder."
    tensors = {
        name.removeprefix(prefix): tensor
        for name, tensor in checkpoint.weights().items()
        if name.startswith(prefix)
    }
    encoder = checkpoint.built(recipe.model.build, tensors).to(device)
    kind = WordEncoder if gives_words else TextEncoder
    reader = kind(encoder, length=recipe.train.length, pooled_is_trained=pooled_is_trained)
    reader.checkpoint = checkpoint
    return reader
