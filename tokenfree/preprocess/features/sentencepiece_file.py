"""Reads what offsets depend on from a SentencePiece model file, without the protobuf package.

SentencePiece ships a reader, but its generated code demands a newer protobuf than Beam and Ray allow. The format:
https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tokenfree.preprocess.common.errors import UserError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
NO_MODEL = "vocabulary.model: not a SentencePiece model; give the path of a .model file"


@dataclass(frozen=True)
class ModelFile:
    """The pieces with their kinds, in the order of ids, and how text becomes pieces."""

    pieces: list[str]
    kinds: list[int]
    algorithm: int
    normalizes: bool
    removes_spaces: bool
    adds_space: bool
    spaces_trail: bool


def read_model(model: bytes) -> ModelFile:
    """Parse the bytes of a model.

    Raises:
        UserError: they are no SentencePiece model.
    """
    pieces, kinds = [], []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    try:
        for number, value in _fields(model):
            if number == 1:
                piece = dict(_fields(_expect_bytes(value)))
                pieces.append(_expect_bytes(piece[1]).decode())
                kinds.append(piece.get(3, NORMAL))
            elif number == 2:
                trainer = dict(_fields(_expect_bytes(value)))
            elif number == 3:
                normalizer = dict(_fields(_expect_bytes(value)))
    except (IndexError, KeyError, ValueError) as error:
        raise UserError(NO_MODEL) from error
    if UNKNOWN not in kinds:
        raise UserError(NO_MODEL)
    return ModelFile(
        pieces=pieces,
        kinds=kinds,
        algorithm=int(trainer.get(3, UNIGRAM)),
        normalizes=bool(normalizer.get(2)),
        removes_spaces=bool(normalizer.get(4, True)),
        adds_space=bool(normalizer.get(3, True)),
        spaces_trail=bool(trainer.get(24, False)),
    )


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: numbers with integers (fixed-width ones left as bytes) or bytes."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
        elif kind in (_FIXED64, _FIXED32, _BYTES):
            length = 8 if kind == _FIXED64 else 4
            if kind == _BYTES:
                length, position = _varint(message, position)
            value = message[position : position + length]
            position += length
            if position > len(message):
                raise ValueError("the message ends inside a field")
        else:
            raise ValueError(f"no wire type {kind}")
        yield tag >> 3, value


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _expect_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where a message or text is due")
    return value
