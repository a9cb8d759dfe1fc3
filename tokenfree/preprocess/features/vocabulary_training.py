"""Training of the subword vocabulary: the same bytes for the same texts and settings, on any machine."""

import io
import re
from collections.abc import Iterable, Iterator

import sentencepiece

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.config import VocabularyConfig
from tokenfree.preprocess.text.sentences import sentence_starts
from tokenfree.preprocess.text.windows import cut

PAD_ID, UNKNOWN_ID = 0, 1
_MAX_LINE_BYTES = 4192  # SentencePiece drops longer ones; they are cut into sentences here
_MAX_LINE_CHARACTERS = _MAX_LINE_BYTES // 4
_THREADS = 4  # each takes every fourth sentence, so that this number, and not the machine, decides the rounding
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))  # of ASCII; a space has a piece wherever there is one
# SentencePiece drops lines with these: its own mark of an unknown character, and NUL.
_RESERVED = str.maketrans({"▅": " ", "\0": " "})


def train_vocabulary(texts: Iterable[str], config: VocabularyConfig, seed: int, *, log: bool = False) -> bytes:
    """The bytes of a SentencePiece model trained on `texts` (documents, in this order; all in memory at once).

    The model does not normalise, so that offsets are exact: spaces are kept, and one is put before each text so that
    a word has the same pieces there as elsewhere. Id 0 is padding, 1 unknown; there are no marks of start and end.
    Texts that do not hold `config.size` different pieces give as many as they hold. With `log` SentencePiece writes to
    standard error what it does.

    Raises:
        UserError: there is no text, or more characters in it than `vocabulary.size`; the size that works is named.
        JobError: SentencePiece could not train it for another reason.
    """
    lines = list(_lines(texts))
    try:
        return _train(lines, config, config.size, seed, log)
    except RuntimeError as error:
        largest = re.search(r"set it to a value <= (\d+)", str(error))
        if largest is None:
            raise _explain(str(error), config.size) from error
    try:
        return _train(lines, config, int(largest[1]), seed, log)
    except RuntimeError as error:
        raise _explain(str(error), int(largest[1])) from error


def _train(lines: list[str], config: VocabularyConfig, size: int, seed: int, log: bool) -> bytes:
    sentencepiece.set_random_generator_seed(seed)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        model_type=config.algorithm,
        character_coverage=config.character_coverage,
        required_chars=_PRINTABLE if config.required_characters == "ascii" else "",
        byte_fallback=config.byte_fallback,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        max_sentence_length=_MAX_LINE_BYTES,
        pad_id=PAD_ID,
        unk_id=UNKNOWN_ID,
        bos_id=-1,
        eos_id=-1,
        num_threads=_THREADS,
        minloglevel=0 if log else 2,
    )
    return model.getvalue()


def _lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for line in text.translate(_RESERVED).split("\n"):
            if len(line) <= _MAX_LINE_CHARACTERS:
                if line and not line.isspace():
                    yield line
            else:
                yield from (line[start:end] for start, end in cut(line, sentence_starts(line), _MAX_LINE_CHARACTERS))


def _explain(message: str, size: int) -> Exception:
    too_low = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if too_low:
        return UserError(
            f"vocabulary.size: {size} is too small for the characters of this corpus; "
            f"set it to at least {too_low[1]}, or lower vocabulary.character_coverage"
        )
    if "!sentences_.empty()" in message:
        return UserError("vocabulary: there is no text to train it on; add input, or give vocabulary.model")
    return JobError(f"vocabulary: SentencePiece could not train it ({message}); give vocabulary.model instead")
