"""The filter by writing systems. It tells Cyrillic from Latin, but not Russian from Ukrainian: it identifies no
language.

What the locked libraries know of languages is not enough for that: charset-normalizer, by the frequencies of letters,
named 9 of 17 pieces of 500 characters of Finnish, took Belarusian for Russian, and Kabyle, which it does not know, for
Dutch (sentences of Tatoeba).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tokenfree.preprocess.text.characters import codepoints_of
from tokenfree.preprocess.text.scripts import scripts_of


def script_share(text: str, scripts: Collection[str]) -> float:
    """The share of the letters of a text that belong to one of `scripts`; 0 where it has no letter.

    What many scripts share, such as digits and punctuation, is no letter here.
    """
    kinds, counts = np.unique(codepoints_of(text), return_counts=True)  # a text has far fewer kinds than characters
    names = scripts_of(kinds)
    letters = counts[names != ""].sum()
    return float(counts[np.isin(names, list(scripts))].sum() / letters) if letters else 0.0
