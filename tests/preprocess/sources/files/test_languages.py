"""Wikimedia's codes and folder names become BCP 47."""

import pytest

from tokenfree.preprocess.sources.files import language_tag, wikimedia_database


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("swwiki.xml.bz2", ("swwiki", "sw")),
        ("viwiki-20230501-pages-articles-multistream.xml.bz2", ("viwiki", "vi")),
        ("simplewiki.xml", ("simplewiki", "en")),
        ("alswiki-latest.xml", ("alswiki", "gsw")),
        ("nowiki-latest.xml", ("nowiki", "nb")),
        ("zh_min_nanwiki-latest.xml", ("zh_min_nanwiki", "nan")),
        ("zh_classicalwiki-latest.xml", ("zh_classicalwiki", "lzh")),
        ("zh_yuewiki-latest.xml", ("zh_yuewiki", "yue")),
        ("bat_smgwiki-latest.xml", ("bat_smgwiki", "sgs")),
        ("fiu_vrowiki-latest.xml", ("fiu_vrowiki", "vro")),
        ("roa_rupwiki-latest.xml", ("roa_rupwiki", "rup")),
        ("be_x_oldwiki-latest.xml", ("be_x_oldwiki", "be-tarask")),
        ("nds_nlwiki-latest.xml", ("nds_nlwiki", "nds-NL")),
        ("frwiktionary-latest.xml", ("frwiktionary", "fr")),
        ("commonswiki-latest.xml", None),
        ("my-own-wiki.xml", None),
        ("wiki.xml", None),
    ],
)
def test_file_names_of_dumps(name: str, expected: tuple[str, str] | None) -> None:
    assert wikimedia_database(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("de", "de"), ("deu", "de"), ("pt_BR", "pt-BR"), ("zh-Hant", "zh-Hant"), ("ceb", "ceb")]
    + [(name, None) for name in ("src", "books", "new", "txt", "DE", "")],
)
def test_folder_names(name: str, expected: str | None) -> None:
    assert language_tag(name) == expected
