"""The inputs that a model reads, by its settings."""

from __future__ import annotations

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.inputs.byte_symbols import ByteInputs
from tokenfree.train.tasks.inputs.no_texts import NoTexts
from tokenfree.train.tasks.inputs.symbols import CharacterInputs, SubwordInputs
from tokenfree.train.tasks.inputs.text_inputs import TextInputs
from tokenfree.train.tasks.inputs.words import WordInputs

_SPECIAL = 3  # CLS, SEP and MASK, behind the subwords


def text_inputs(model: ModelConfig, length: int, vocabulary: Vocabulary | None) -> TextInputs:
    """How texts become inputs of at most `length` positions of a model.

    Args:
        vocabulary: of subwords, for models that read them.

    Raises:
        UserError: the model reads subwords of no vocabulary or of a larger one, or no text fits into `length`.
    """
    if model.embedder.symbols == "vectors":
        return NoTexts(model.embedder.name, length)
    if model.downsampler.bytes_per_word is not None:
        return WordInputs(model, length)
    if model.embedder.symbols == "characters":
        return CharacterInputs(model, length)
    if model.embedder.symbols == "bytes":
        return ByteInputs(model, length)
    if vocabulary is None:
        raise UserError(
            f"model.embedder.name: {model.embedder.name} reads subwords; give the run whose vocabulary they are of as "
            "--init-from, or a SentencePiece model as --vocabulary"
        )
    if model.embedder.size < vocabulary.size + _SPECIAL:
        raise UserError(
            f"model.embedder.size: {model.embedder.size} rows are too few for the {vocabulary.size} subwords of the "
            f"vocabulary and CLS, SEP and MASK; set it to {vocabulary.size + _SPECIAL}"
        )
    return SubwordInputs(model, length, vocabulary)
