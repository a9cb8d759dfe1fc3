"""Language identification by lingua."""

import pytest

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import FilterConfig, PreprocessConfig, steps_of
from tokenfree.preprocess.job.inputs import identity
from tokenfree.preprocess.records import Document

lingua = pytest.importorskip("lingua", reason="needs the extra language-id")

GEESE = {
    "en": "Seven geese argue about bread while the rain falls on quiet hills and old boats.",
    "de": "Sieben Gänse streiten sich um das Brot, während der Regen auf stille Hügel fällt.",
    "fr": "Sept oies se disputent le pain pendant que la pluie tombe sur les collines.",
    "uk": "Сім гусей сперечаються про хліб, поки падає дощ.",
}


def config(**settings: object) -> PreprocessConfig:
    return PreprocessConfig(filters=FilterConfig(also=({"name": "language", **settings},)))


def reasons(language: str | None = None, **settings: object) -> dict[str, str | None]:
    """The reason for each text. Its source names `language`, or the right one."""
    (step,) = steps_of(config(**settings)).filters
    return {code: step.reason(Document("a", language or code, "", text)) for code, text in GEESE.items()}


def test_documents_in_other_languages_are_dropped() -> None:
    assert reasons(languages=["en", "uk"]) == {
        "en": None,
        "de": "identified_de",
        "fr": "identified_fr",
        "uk": None,
    }


def test_by_default_the_source_names_the_language() -> None:
    assert reasons() == dict.fromkeys(GEESE)
    assert reasons("de-AT") == {**{code: f"identified_{code}" for code in GEESE}, "de": None}
    # Of languages that lingua does not know.
    assert reasons("gsw") == reasons("und") == dict.fromkeys(GEESE)


def test_only_the_first_characters_count_and_must_be_certain() -> None:
    (step,) = steps_of(config(languages=["en"], characters=len(GEESE["en"]))).filters
    assert step.reason(Document("a", "en", "", GEESE["en"] + GEESE["de"] * 9)) is None
    assert step.reason(Document("a", "en", "", "1 + 1 = 2")) == "uncertain_language"


def test_a_language_that_is_not_known_is_refused() -> None:
    with pytest.raises(UserError, match=r"lingua does not know the languages \['gsw'\] \(known: af, ar"):
        reasons(languages=["gsw", "de"])


def test_the_version_is_part_of_the_job() -> None:
    from importlib.metadata import version

    name = "lingua-language-detector"
    assert identity(config(), ())["versions"][name] == version(name)
    assert name not in identity(PreprocessConfig(), ())["versions"]
