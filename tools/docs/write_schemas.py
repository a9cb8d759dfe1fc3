"""Writes the JSON schemas of recipes, docs/schemas: `python -m tools.docs.write_schemas` after a key has changed."""

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from tokenfree.workflows.recipes.keys import BASE, text_of
from tokenfree.workflows.recipes.kinds import KINDS, RecipeKind
from tools import REPOSITORY

FOLDER = REPOSITORY / "docs" / "schemas"
OWN_PART = {"type": "object", "properties": {"name": {"pattern": r"\."}}, "required": ["name"]}


class _Schema(GenerateJsonSchema):
    """Schemas of settings. No key is required, because a recipe may be laid over a base."""

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        made = super().dataclass_schema(schema)
        for name, value in made["properties"].items():
            value.pop("title", None)
            value["description"] = text_of(schema["cls"], name)
        return {"type": "object", "properties": made["properties"], "additionalProperties": False}

    def function_plain_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a slot: the name of a part, or a mapping of its keys, whose name the base may have."""
        slot = schema["function"]["function"].__self__
        parts: list[JsonSchemaValue] = []
        for name in slot.names():
            made = self.generate_inner(TypeAdapter(slot.config_class(name)).core_schema)
            parts.append({"allOf": [{"properties": {"name": {"const": name}}}, made]})
        return {"anyOf": [{"type": "string"}, *parts, OWN_PART]}


def schema(kind: RecipeKind) -> dict[str, Any]:
    made = TypeAdapter(kind.settings_class()).json_schema(schema_generator=_Schema)
    made["properties"][BASE.name] = {"type": ["string", "object"], "description": BASE.meaning}
    return {"$schema": GenerateJsonSchema.schema_dialect, **made}


def files() -> dict[str, str]:
    return {
        f"{kind.command}.json": json.dumps(schema(kind), indent=1, ensure_ascii=False) + "\n"
        for kind in KINDS
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
