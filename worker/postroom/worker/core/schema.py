"""JSON schemas: whether one makes sense, and what is wrong with a value by it."""

from typing import Any

from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.limits import cut
from postroom.worker.core.tokens import Memo

Plain = dict[str, Any]
PROBLEMS, PROBLEM_CHARACTERS = 5, 300


def check(schema: Plain, what: str = "schema") -> None:
    """Refuses what is no JSON schema."""
    from jsonschema.exceptions import SchemaError

    try:
        _validator(schema).check_schema(schema)
    except SchemaError as error:
        raise InvalidInput(f"{what} is not a JSON schema: {_line(error.json_path, error.message)}") from None


def problems(schema: Plain, value: Any) -> tuple[str, ...]:
    """The first few things wrong with a value, a line each; none if it is right."""
    from referencing.exceptions import Unresolvable

    try:
        found = sorted(_validator(schema).iter_errors(value), key=lambda error: error.json_path)
    except Unresolvable as error:
        raise InvalidInput(f"the schema refers to {error.ref!r}, which is not in it; put it under $defs") from None
    except RecursionError:
        return ("$: nested too deeply",)
    return bounded([(error.json_path, error.message) for error in found])


def bounded(found: list[tuple[str, str]]) -> tuple[str, ...]:
    """Places and what is wrong there as lines, no more and no longer than a model needs to mend them."""
    lines = [_line(where, what) for where, what in found[:PROBLEMS]]
    return (*lines, f"and {len(found) - PROBLEMS} more") if len(found) > PROBLEMS else tuple(lines)


def _line(where: str, what: str) -> str:
    return cut(f"{where}: {what}", PROBLEM_CHARACTERS)[0]


def _made(schema: Plain) -> Any:
    # Imported here: it takes a tenth of a second, and only agents with a schema of their own need it.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    # An empty registry: a schema never makes us fetch anything.
    return validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())


_validator: Memo[Any] = Memo(_made, most=1000)
