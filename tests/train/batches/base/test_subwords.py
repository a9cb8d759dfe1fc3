"""The subwords of a vocabulary as targets."""

from tokenfree.train.batches.base import letters_of


def test_the_letter_of_a_piece_is_its_first_that_has_a_script() -> None:
    pieces = ["▁the", "ing", "▁(語b", "3c4д", "▁12", "▁", "..", "ab"]
    assert [chr(letter) for letter in letters_of(pieces)] == ["t", "i", "語", "c", "1", "\0", ".", "a"]
    assert letters_of([]).tolist() == []
