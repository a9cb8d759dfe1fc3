"""Sites to clean for: a few wikis with the namespace names that their dumps give."""

import pytest

from tokenfree.preprocess.records import CANONICAL_NAMESPACES, Site

_LOCAL = {
    "en": {},
    "de": {6: "Datei", 14: "Kategorie"},
    "fr": {6: "Fichier", 14: "Catégorie"},
    "vi": {6: "Tập tin", 14: "Thể loại"},
    "uk": {6: "Файл", 14: "Категорія"},
    "ja": {6: "ファイル"},
    "bn": {6: "চিত্র", 14: "বিষয়শ্রেণী"},
    "zh": {},
    "ltg": {6: "Fails", 14: "Kategoreja"},
    "xx": {6: "Bildfajlo", 14: "Speco"},
}


def _site(language: str) -> Site:
    local = _LOCAL[language]
    names = {
        number: (local[number], *canonical) if number in local else canonical
        for number, canonical in CANONICAL_NAMESPACES.items()
    }
    return Site(f"{language}wiki", language, names)


@pytest.fixture(scope="session")
def sites() -> dict[str, Site]:
    """A site by language code."""
    return {language: _site(language) for language in _LOCAL}
