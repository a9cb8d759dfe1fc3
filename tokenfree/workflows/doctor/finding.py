"""What a check says."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """One line of the report. `note` can be lived with, `missing` cannot; both say how to mend it."""

    state: State
    what: str
    value: str
    remedy: str = ""
