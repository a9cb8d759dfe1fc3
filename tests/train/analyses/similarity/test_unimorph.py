"""UniMorph's files as they are found, and pairs drawn from them."""

from pathlib import Path

import pytest

from tokenfree.core.errors import UserError
from tokenfree.train.analyses.similarity import draw_pairs, read_unimorph, unimorph_files

WORDS = {
    f"lemma{number}": [f"w{number}{ending}" for ending in ("", "s", "ed", "ing")] for number in range(20)
}


def test_lemma_and_form_of_every_format(tmp_path: Path) -> None:
    """Blank lines between lemmas, features with bars and a fourth column, Windows' line ends, several words."""
    path = tmp_path / "eng"
    path.write_text(
        "\ufeff\nlive\tlives\tV;3;SG\r\nlive\tliving\tV|V.PTCP;PRS\tlive|ing\nlive\tlive\tV;NFIN\n\n"
        "cafe\u0301\tcafés\tN;PL\ngive up\tgave up\tV;PST\ngive up\tgave\tV;PST\nRun\truns\n",
        encoding="utf-8",
    )
    assert read_unimorph(str(path)) == {
        "live": ["live", "lives", "living"],
        "café": ["café", "cafés"],
        "give up": ["gave"],
        "Run": ["Run", "runs"],
    }


def test_the_real_files_are_read(test_data: Path) -> None:
    if not (test_data / "unimorph").is_dir():
        pytest.skip("no UniMorph there")
    files = unimorph_files([str(test_data / "unimorph" / name) for name in ("eng.args", "nld", "swc")])
    lemmas = {name: read_unimorph(path) for name, path in files.items()}
    assert len(lemmas["swc"]) == 100
    assert lemmas["eng"]["zip"][0] == "zip"
    assert all(
        not any(character.isspace() for character in word)
        for words in lemmas["nld"].values()
        for word in words
    )


def test_a_file_that_is_none_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "eng"
    path.write_text("live\tlives\n\nlive lives\n")
    with pytest.raises(UserError, match=r"eng:3: no tab"):
        read_unimorph(str(path))
    path.write_bytes(b"live\tlives\nl\xefve\tx\n")
    with pytest.raises(UserError, match=r"eng: line 2: this is not utf-8"):
        read_unimorph(str(path))
    with pytest.raises(UserError, match="the same name"):
        unimorph_files([str(path), str(tmp_path / "other" / "eng.args")])


def test_pairs_are_of_one_lemma_and_of_two() -> None:
    pairs = draw_pairs(WORDS, 30, seed=0, name="eng")
    assert len(pairs.related) == len(pairs.random) == len(pairs.lemmas) == 30
    assert len(set(pairs.related)) == 30
    # A pair for each lemma before any has a second one.
    assert sorted(pairs.lemmas[:20].tolist()) == list(range(20))
    for (one, other), (own, stranger), lemma in zip(
        pairs.related, pairs.random, pairs.lemmas.tolist(), strict=True
    ):
        words = WORDS[f"lemma{lemma}"]
        assert {one, other, own} <= set(words)
        assert one != other
        assert stranger not in words


def test_pairs_follow_the_seed_and_the_name() -> None:
    assert (
        draw_pairs(WORDS, 30, seed=0, name="eng").random == draw_pairs(WORDS, 30, seed=0, name="eng").random
    )
    assert (
        draw_pairs(WORDS, 30, seed=0, name="eng").random != draw_pairs(WORDS, 30, seed=1, name="eng").random
    )
    assert (
        draw_pairs(WORDS, 30, seed=0, name="eng").random != draw_pairs(WORDS, 30, seed=0, name="nld").random
    )


def test_there_are_no_more_pairs_than_words_give() -> None:
    assert (
        len(draw_pairs({"a": ["a", "as"], "b": ["b"], "c": ["c", "cs"]}, 100, seed=0, name="x").related) == 2
    )
    for words in ({"a": ["a", "as"]}, {"a": ["a"], "b": ["b"]}, {}):
        with pytest.raises(UserError, match="needs two lemmas"):
            draw_pairs(words, 100, seed=0, name="x")
