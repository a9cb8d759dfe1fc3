"""What is read from model files is what SentencePiece itself says of them."""

import contextlib
import io
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.core.errors import UserError
from tokenfree.preprocess.features.vocabulary import BYTE, CONTROL, UNKNOWN, ModelFile, read_model


@pytest.fixture(scope="module")
def model() -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a short text, and another short text"] * 3),
        model_writer=written,
        vocab_size=290,
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return written.getvalue()


def test_pieces_and_kinds(model: bytes) -> None:
    file = read_model(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(processor.get_piece_size())
    assert file.pieces == [processor.id_to_piece(index) for index in ids]
    assert [kind == BYTE for kind in file.kinds] == [processor.is_byte(index) for index in ids]
    assert [kind == UNKNOWN for kind in file.kinds] == [processor.is_unknown(index) for index in ids]
    assert [kind == CONTROL for kind in file.kinds] == [processor.is_control(index) for index in ids]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (True, True, True, False)),
        ({"normalization_rule_name": "identity"}, (False, True, True, False)),
        ({"remove_extra_whitespaces": False}, (True, False, True, False)),
        ({"add_dummy_prefix": False}, (True, True, False, False)),
        ({"treat_whitespace_as_suffix": True}, (True, True, True, True)),
    ],
)
def test_how_text_becomes_pieces(options: dict[str, Any], expected: tuple[bool, ...]) -> None:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ab ba ab"]),
        model_writer=written,
        vocab_size=8,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    file: ModelFile = read_model(written.getvalue())
    assert (file.normalizes, file.removes_spaces, file.adds_space, file.spaces_trail) == expected


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_models_are_refused_or_read(model: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(model)))
    noise = data.draw(st.binary(max_size=20))
    with contextlib.suppress(UserError):
        file = read_model(model[:end] + noise)
        assert len(file.pieces) == len(file.kinds) > 0
