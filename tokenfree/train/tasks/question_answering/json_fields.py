"""Fields of JSON files of questions, each with the place that it is at, so that one that is wrong can be named."""

from __future__ import annotations

import json
from typing import Any

from tokenfree.train.tasks.examples.files import whole_characters

_KINDS = {str: "a text", int: "an integer", list: "a list", dict: "an object"}


class WrongField(Exception):
    """A field that is missing or has the wrong form."""


def field(record: Any, name: str, kind: type, where: str, form: str) -> Any:
    """The field `name` of an object; a text is of whole characters.

    Args:
        record: the object.
        name: of the field.
        kind: str, int, list or dict.
        where: the place of the object in its file or line; "" for the whole.
        form: of the file that is wanted, such as "a file in the form of SQuAD".

    Raises:
        WrongField: there is none, or it is of another kind.
    """
    if not isinstance(record, dict):
        raise WrongField(f"{where or 'the file'} is to be an object, not a {type(record).__name__}; give {form}")
    full = f"{where}.{name}" if where else name
    if name not in record:
        raise WrongField(f"has no {full}; give {form}")
    value = record[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise WrongField(f"{full} is to be {_KINDS[kind]}, not {json.dumps(value)[:40]}")
    return whole_characters(value) if isinstance(value, str) else value
