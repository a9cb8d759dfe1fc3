"""Subword spans against SentencePiece's own surfaces, in every script, with and without byte fallback."""

import bz2
import contextlib
import functools
import lzma
import pickle
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import VocabularyConfig
from tokenfree.preprocess.features.vocabulary import Vocabulary, train_vocabulary

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the other dogs jump over other foxes.\nHow vexingly quick!",
    "Die Würde des Menschen ist unantastbar. Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Все люди рождаются свободными и равными в своём достоинстве и правах. Они наделены разумом и совестью.",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
] * 3
SIZES = {"bytes": 390, "unknown": 130}
VARIANTS = ("unigram-bytes", "unigram-unknown", "bpe-bytes", "bpe-unknown")
SPACELESS = "unigram-bytes-without-spaces"  # no piece for a space: it is written as three bytes


def config_of(variant: str, **changes: object) -> VocabularyConfig:
    algorithm, rest = variant.split("-")[:2]
    values = {
        "size": SIZES[rest],
        "algorithm": algorithm,
        "byte_fallback": rest == "bytes",
        "character_coverage": 0.98,
        "required_characters": "none",
    }
    return VocabularyConfig(**(values | changes))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def vocabularies() -> dict[str, Vocabulary]:
    trained = {variant: train_vocabulary(CORPUS, config_of(variant), 0) for variant in VARIANTS}
    draw = random.Random(0)
    spaceless = ["".join(draw.choices("ACGT", k=2000)) for _ in range(20)]
    trained[SPACELESS] = train_vocabulary(spaceless, config_of(SPACELESS, size=300), 0)
    assert "▁" not in Vocabulary.load(trained[SPACELESS]).pieces
    return {variant: Vocabulary.load(model) for variant, model in trained.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_printable_ascii_always_has_pieces(variant: str) -> None:
    printable = set(map(chr, range(0x21, 0x7F)))
    size = SIZES[variant.split("-")[1]] + 95
    trained = train_vocabulary(CORPUS, config_of(variant, size=size, required_characters="ascii"), 0)
    vocabulary = Vocabulary.load(trained)
    assert printable <= set(vocabulary.pieces)
    assert vocabulary.num_byte_pieces(vocabulary.encode_flat(["".join(sorted(printable))]).ids) == 0
    without = Vocabulary.load(train_vocabulary(CORPUS, config_of(variant), 0))
    assert not printable <= set(without.pieces)


@functools.cache
def peer_of(model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def truth(vocabulary: Vocabulary, text: str) -> list[tuple[int, int, int]]:
    """Ids and visible codepoint spans by SentencePiece's byte offsets, one piece at a time."""
    processor = peer_of(vocabulary.model)
    spaced = text.replace("\n", " ")
    characters = np.repeat(np.arange(len(text) + 1), [*(len(character.encode()) for character in text), 1])
    pieces = []
    found = processor.encode(spaced, return_type="proto").pieces
    if [piece.piece for piece in found[:3]] == ["<0xE2>", "<0x96>", "<0x81>"] and not found[2].surface:
        found = found[3:]  # the space that SentencePiece puts before a text
    for piece in found:
        start, end = int(characters[piece.begin]), int(characters[piece.end])
        if processor.is_byte(piece.id):
            end = max(end, start + 1)
        else:
            assert spaced[start:end] == piece.surface
        visible = text[start:end].strip()
        if visible:
            start += len(text[start:end]) - len(text[start:end].lstrip())
            pieces.append((piece.id, start, start + len(visible)))
    return pieces


def found(vocabulary: Vocabulary, texts: list[str]) -> list[list[tuple[int, int, int]]]:
    *columns, offsets = vocabulary.encode_flat(texts)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return [rows[start:end] for start, end in pairwise(offsets.tolist())]


def test_training_is_deterministic_and_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    config = config_of("unigram-bytes")
    assert train_vocabulary(CORPUS, config, 1) == train_vocabulary(iter(CORPUS), config, 1)
    assert capfd.readouterr() == ("", "")


def test_lines_that_sentencepiece_would_drop_are_learned_from() -> None:
    texts = [*CORPUS, "ξ " * 3000, "▅ ζ " * 40, "\0 ψ " * 40]
    config = config_of("unigram-bytes", size=400, character_coverage=1.0)
    pieces = Vocabulary.load(train_vocabulary(texts, config, 0)).pieces
    assert set("ξζψ") <= set("".join(pieces))


@pytest.mark.parametrize("variant", VARIANTS)
def test_special_pieces(vocabularies: dict[str, Vocabulary], variant: str) -> None:
    vocabulary = vocabularies[variant]
    pieces = vocabulary.pieces
    assert pieces[:2] == ["<pad>", "<unk>"]
    assert not {"<s>", "</s>"} & set(pieces)
    assert vocabulary.size == len(pieces) == SIZES[variant.split("-")[1]]
    assert ("<0xFF>" in pieces) == variant.endswith("bytes")
    assert not any("\n" in piece or " " in piece for piece in pieces)


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_a_small_corpus_gives_as_many_pieces_as_it_holds(algorithm: str) -> None:
    model = train_vocabulary(CORPUS, config_of(f"{algorithm}-bytes", size=60_000), 0)
    size = Vocabulary.load(model).size
    assert 300 < size < 60_000
    assert train_vocabulary(CORPUS, config_of(f"{algorithm}-bytes", size=size), 0) == model
    assert (
        Vocabulary.load(train_vocabulary(CORPUS, config_of(f"{algorithm}-bytes", size=size - 1), 0)).size
        == size - 1
    )


def test_too_small_a_vocabulary_names_the_smallest_that_works() -> None:
    config = config_of("unigram-bytes", size=300, character_coverage=1.0)
    with pytest.raises(UserError, match=r"^vocabulary\.size: 300 is too small .* at least \d+"):
        train_vocabulary(CORPUS, config, 0)


@pytest.mark.parametrize("texts", [[], [""], [" \n "]])
def test_no_text_to_train_on(texts: list[str]) -> None:
    with pytest.raises(UserError, match="no text to train it on"):
        train_vocabulary(texts, VocabularyConfig(), 0)


@pytest.mark.parametrize("model", [b"", b"<html>not found</html>", b"\x0a\xff\xff", b"\x00" * 100])
def test_what_is_no_model_is_refused(model: bytes) -> None:
    with pytest.raises(UserError, match=r"^vocabulary\.model: "):
        Vocabulary.load(model)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_models_are_refused_or_read(vocabularies: dict[str, Vocabulary], data: st.DataObject) -> None:
    model = vocabularies["unigram-bytes"].model
    end = data.draw(st.integers(0, len(model)))
    noise = data.draw(st.binary(max_size=20))
    with contextlib.suppress(UserError):
        assert Vocabulary(model[:end] + noise).size > 0


def test_example(vocabularies: dict[str, Vocabulary]) -> None:
    vocabulary = vocabularies["unigram-bytes"]
    text = "The dog\n\nThe  👩"
    encoding = vocabulary.encode_flat([text])
    pieces = [vocabulary.pieces[index] for index in encoding.ids.tolist()]
    spans = [
        text[start:end] for start, end in zip(encoding.starts.tolist(), encoding.ends.tolist(), strict=True)
    ]
    assert [piece.lstrip("▁") for piece in pieces[:-4]] == spans[:-4]
    assert spans[-4:] == ["👩"] * 4
    assert pieces[-4:] == ["<0xF0>", "<0x9F>", "<0x91>", "<0xA9>"]
    assert "".join(spans[:-4]) == "ThedogThe"
    assert (encoding.ids.dtype, encoding.starts.dtype, encoding.ends.dtype) == (
        np.int32,
        np.uint16,
        np.uint16,
    )


@pytest.mark.parametrize("variant", [*VARIANTS, SPACELESS])
@settings(max_examples=400, deadline=None)
@given(
    texts=st.lists(
        st.text()
        | st.text(st.sampled_from("the dog ACGT Würde правах 自由 ▁▅é\u0301👩\u200d🔬\n\t\xa0\u3000<unk>0x")),
        max_size=5,
    )
)
@example(texts=[])
@example(texts=["", "\n", "", "☃", " ", "☃\n☃ x☃"])
@example(texts=["☃☃", "☃☃"])
@example(texts=["▁ ▁▁the", "<0x41>", "<unk>", "\0"])
def test_spans_are_those_of_sentencepiece(
    vocabularies: dict[str, Vocabulary], variant: str, texts: list[str]
) -> None:
    vocabulary = vocabularies[variant]
    assert found(vocabulary, texts) == [truth(vocabulary, text) for text in texts]


def real_texts(test_data: Path) -> Iterator[str]:
    for file in [
        *sorted(test_data.glob("udhr/*.txt")),
        test_data / "nasty/blns.txt",
        test_data / "nasty/emoji-test.txt",
    ]:
        yield file.read_text(encoding="utf-8")[:100_000]
    with lzma.open(test_data / "tatoeba/tatoeba-nonascii.csv.xz", "rt", encoding="utf-8") as stream:
        yield stream.read(100_000)
    for file in sorted(test_data.glob("wiki-dumps/**/*.xml.bz2")):
        with bz2.open(file, "rt", encoding="utf-8") as stream:
            yield stream.read(40_000)


@pytest.mark.parametrize(
    ("variant", "step"),
    [
        # A fifth of each file.
        ("unigram-bytes", 20_000),
        ("bpe-unknown", 20_000),
        *(pytest.param(variant, 4000, marks=pytest.mark.slow) for variant in (*VARIANTS, SPACELESS)),
    ],
)
def test_real_text_in_every_script(
    vocabularies: dict[str, Vocabulary], variant: str, step: int, test_data: Path
) -> None:
    texts = [
        text[start : start + 4000] for text in real_texts(test_data) for start in range(0, len(text), step)
    ]
    vocabulary = vocabularies[variant]
    for text, pieces in zip(texts, found(vocabulary, texts), strict=True):
        assert pieces == truth(vocabulary, text)


@pytest.mark.parametrize(
    "options",
    [
        {"normalization_rule_name": "nmt_nfkc"},
        {
            "normalization_rule_name": "identity",
            "treat_whitespace_as_suffix": True,
            "remove_extra_whitespaces": False,
        },
        {"normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
        {
            "normalization_rule_name": "identity",
            "user_defined_symbols": ["☃❄"],
            "remove_extra_whitespaces": False,
        },
        {"model_type": "char", "hard_vocab_limit": False},
        {"model_type": "word", "hard_vocab_limit": False},
    ],
)
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_models_of_other_kinds(tmp_path: Path, options: dict[str, Any], byte_fallback: bool) -> None:
    prefix = tmp_path / "given"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_prefix=str(prefix),
        vocab_size=SIZES["bytes" if byte_fallback else "unknown"],
        byte_fallback=byte_fallback,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    vocabulary = Vocabulary.load(prefix.with_suffix(".model").read_bytes())
    texts = ["The  quick ☃❄ and ☃ Ａ dog…\nsnow❄☃", "㎏ ﬁne ½ e\u0301", "", " ", "Würde☃"]
    for text, pieces in zip(texts, found(vocabulary, texts), strict=True):
        assert [(start, end) for _, start, end in pieces] == [
            (start, end) for _, start, end in truth(vocabulary, text)
        ]


def test_pickled_vocabulary_encodes_the_same(vocabularies: dict[str, Vocabulary]) -> None:
    vocabulary = vocabularies["bpe-bytes"]
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert (copy.sha256, copy.size) == (vocabulary.sha256, vocabulary.size)
    assert found(copy, CORPUS) == found(vocabulary, CORPUS)


def test_text_beyond_the_offsets_is_refused(vocabularies: dict[str, Vocabulary]) -> None:
    with pytest.raises(ValueError, match="65536 characters"):
        vocabularies["bpe-bytes"].encode_flat(["a" * 65_536])
