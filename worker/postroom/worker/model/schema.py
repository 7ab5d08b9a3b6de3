"""JSON schemas as providers want them for answers of a given shape."""

from collections.abc import Iterator
from typing import Any, Final

from postroom.worker.model.base import Plain

# What constrains values rather than shape; the answer is checked against the whole schema when it has arrived.
_UNSUPPORTED: Final = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "patternProperties",
    }
)
# Words whose value is a map of names to schemas: the names are the user's, not the language's.
_NAMED: Final = frozenset(("properties", "$defs", "definitions"))


def is_strict(schema: Plain) -> bool:
    """Whether a provider can hold the model to it exactly: every object is closed and requires all it has."""
    return all(
        each.get("additionalProperties") is False and set(each.get("required", ())) == set(each.get("properties", ()))
        for each in _objects(schema)
    )


def closed(schema: Any) -> Any:
    """The schema with every object closed and without the words that providers of strict shapes refuse."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        word: {name: closed(each) for name, each in value.items()} if word in _NAMED else closed(value)
        for word, value in schema.items()
        if word not in _UNSUPPORTED and not (word == "minItems" and value not in (0, 1))
    }
    if found.get("type") == "object":
        found["additionalProperties"] = False
    return found


def _objects(schema: Any) -> Iterator[Plain]:
    if isinstance(schema, list):
        for each in schema:
            yield from _objects(each)
    elif isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for word, value in schema.items():
            yield from _objects(list(value.values()) if word in _NAMED and isinstance(value, dict) else value)
