"""Special symbols of the three kinds of input: characters, bytes and subwords. Text contains none of them."""

from typing import NamedTuple

# Private-use codepoints, as in CANINE's code.
PAD, CLS, SEP, BOS, MASK = 0x0000, 0xE000, 0xE001, 0xE002, 0xE003
QUESTION_MARKER = 0xE005  # before the question, as in CANINE's code for TyDi QA
FIRST_PASSAGE_MARKER = 0xE006  # marker of the passage with index 0
RESERVED = (PAD, *range(0xE000, 0xE033))  # special codepoints, up to the last passage marker of TyDi QA
BYTE_PAD, BYTE_UNK, BYTE_CLS, BYTE_SEP, BYTE_MASK = range(5)
NUM_SUBWORD_SPECIALS = 3  # CLS, SEP and MASK have the ids after those of the vocabulary


class Specials(NamedTuple):
    """The special symbols that all kinds of input have in common."""

    pad: int
    cls: int
    sep: int
    mask: int


CHARACTERS = Specials(PAD, CLS, SEP, MASK)
BYTES = Specials(BYTE_PAD, BYTE_CLS, BYTE_SEP, BYTE_MASK)


def of_subwords(size: int) -> Specials:
    return Specials(0, size, size + 1, size + 2)
