"""Which columns of a table hold text, id and language, and what is told where they are not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records.input_split import InputSplit

USUAL = {"id": "id", "language": "language"}  # taken where they are there; any other name is one that the user gave
SHOWN = 12  # columns in a message


@dataclass(frozen=True)
class TableColumns:
    """The names of the columns of a table that are read, beside `title`."""

    text: str
    id: str
    language: str

    @classmethod
    def of(cls, settings: PreprocessConfig | InputSplit) -> TableColumns:
        """Those that the settings of a job, or an input split, name."""
        return cls(settings.text_column, settings.id_column, settings.language_column)

    def among(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that are to be read, each once."""
        wanted = dict.fromkeys([self.text, self.id, self.language, "title"])
        return [name for name in wanted if name in names]

    def check(self, schema: pa.Schema, what: str) -> None:
        """See that a table has the columns that it is to have: that of the text, and others where the user named them.

        Args:
            schema: of the table.
            what: what the message calls it.

        Raises:
            UserError: one is not there, or that of the text or the language holds no text.
        """
        for role, name in vars(self).items():
            self._check(role, name, schema, what)

    def _check(self, role: str, name: str, schema: pa.Schema, what: str) -> None:
        if name not in schema.names:
            if name == USUAL.get(role):
                return
            raise UserError(f"{what} has no column {name!r}, only {shown(schema.names)}; {remedy(role)}")
        kind = schema.field(name).type
        if role == "id" or (name == USUAL.get(role) and role != "text"):
            return  # any value names a row; a language that is no text is passed over, as that of a line is
        if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
            raise UserError(f"{what}: column {name!r} holds {kind}, no text; {remedy(role)}")


def shown(names: Sequence[str]) -> str:
    """The names of columns in a message."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def remedy(role: str) -> str:
    """What to do where the column with this role (text, id or language) is not there."""
    return f"name the one with the {role}: --{role}_column NAME"
