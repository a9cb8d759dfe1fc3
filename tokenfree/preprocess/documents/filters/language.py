"""Language identification by lingua, https://github.com/pemistahl/lingua-py."""

import functools
from typing import Annotated, Any, Literal

from pydantic import Field

from tokenfree.core.settings import Positive, settings
from tokenfree.preprocess.config import Filter
from tokenfree.preprocess.records import Document


@settings
class Config(Filter):
    """A filter by the language of the first characters. It takes 0.2 to 5 ms of CPU time a document with the defaults.

    Documents are identified among the 75 languages of lingua. Those whose language it does not know stay.

    Attributes:
        languages: languages to keep, as two letters of ISO 639-1; []: the one that the source of a document names.
        min_confidence: minimum confidence in the most likely language, 0 to 1.
        characters: number of characters to look at; the time is in proportion.
    """

    name: Literal["language"] = "language"
    languages: tuple[str, ...] = ()
    min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.5
    characters: Positive = 1000

    packages = ("lingua-language-detector",)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.languages) - _languages())
        if unknown:
            raise ValueError(
                f"lingua does not know the languages {unknown} (known: {', '.join(sorted(_languages()))})"
            )

    def reason(self, document: Document) -> str | None:
        kept = self.languages or (document.language.partition("-")[0],)
        if _languages().isdisjoint(kept):
            return None
        likeliest = _detector().compute_language_confidence_values(document.text[: self.characters])[0]
        if likeliest.value < self.min_confidence:
            return "uncertain_language"
        code = _code(likeliest.language)
        return None if code in kept else f"identified_{code}"


def _code(language: Any) -> str:
    return language.iso_code_639_1.name.lower()


@functools.cache
def _languages() -> frozenset[str]:
    from lingua import Language

    return frozenset(map(_code, Language.all()))


@functools.cache
def _detector() -> Any:
    from lingua import LanguageDetectorBuilder

    return LanguageDetectorBuilder.from_all_languages().build()
