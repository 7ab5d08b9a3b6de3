"""What a function's signature says: the schema a model is given, and the check of what it sends."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from postroom.worker.tools.base import Plain, ToolContext
from postroom.worker.tools.errors import InvalidArguments

_SHOWN = 10
_COLLECTED = {
    inspect.Parameter.VAR_POSITIONAL: "*{}",
    inspect.Parameter.VAR_KEYWORD: "**{}",
}


class _Brief(GenerateJsonSchema):
    """Leaves out what only costs tokens: titles made of names, and notes on defaults that JSON cannot say."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Arguments:
    """Checked arguments by parameter, and the raw ones they were made of."""

    values: Plain
    raw: Plain


class Signature:
    """A function as a model may call it. `problems` says why it cannot; then there is no schema."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.problems: list[str] = []
        self.schema: Plain = {}
        self._function = function
        self._contexts: list[str] = []
        self._fields: dict[str, str] = {}
        hints = self._hints()
        parameters = inspect.signature(function).parameters
        self._positional = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_ONLY]
        described = {name: self._described(each, hints) for name, each in parameters.items()}
        if not self.problems:
            self._model = self._modelled({name: each for name, each in described.items() if each is not None})

    def check(self, raw: Plain) -> Arguments:
        """The arguments as the function wants them, or an error that names every mistake."""
        try:
            found = self._model.model_validate(raw)
        except ValidationError as error:
            raise InvalidArguments(mistakes(error)) from None
        return Arguments({name: getattr(found, field) for field, name in self._fields.items()}, raw)

    def call(self, arguments: Arguments, context: ToolContext) -> Any:
        """What the function returns for checked arguments."""
        values = arguments.values | dict.fromkeys(self._contexts, context)
        first = [values.pop(name) for name in self._positional]
        return self._function(*first, **values)

    def _hints(self) -> Plain:
        try:
            return typing.get_type_hints(self._function, include_extras=True)
        except (NameError, TypeError, AttributeError, SyntaxError) as error:
            self.problems.append(f"its annotations cannot be read ({error}); define those types at module level")
            return {}

    def _described(self, parameter: inspect.Parameter, hints: Plain) -> tuple[Any, Any] | None:
        name = parameter.name
        hint = hints.get(name)
        if parameter.kind in _COLLECTED:
            shown = _COLLECTED[parameter.kind].format(name)
            self.problems.append(f"{shown} cannot be described to a model; name each parameter")
        elif hint is ToolContext or ToolContext in typing.get_args(hint):
            self._contexts.append(name)
        elif parameter.annotation is inspect.Parameter.empty:
            self.problems.append(f"parameter {name!r} has no type; say what a model must send, Any if anything will do")
        else:
            return hint, ... if parameter.default is inspect.Parameter.empty else parameter.default
        return None

    def _modelled(self, described: dict[str, tuple[Any, Any]]) -> type[BaseModel]:
        # Fields have names of their own and the parameters' as aliases: `json` or `_x` would clash with the model's.
        self._fields = {f"parameter_{place}": name for place, name in enumerate(described)}
        fields: Any = {field: _aliased(name, *described[name]) for field, name in self._fields.items()}
        try:
            model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
            self.schema = model.model_json_schema(schema_generator=_Brief)
        except (PydanticUserError, TypeError, ValueError) as error:
            culprits = [name for name, (hint, _) in described.items() if not _schemable(hint)]
            named = ", ".join(map(repr, culprits)) or f"its parameters ({str(error).splitlines()[0]})"
            self.problems.append(f"the type of {named} has no JSON schema; use plain data or a pydantic model")
            return BaseModel
        self.schema.pop("title", None)
        return model


def _aliased(name: str, hint: Any, default: Any) -> tuple[Any, Any]:
    return Annotated[hint, Field(alias=name)], default


def _schemable(hint: Any) -> bool:
    try:
        TypeAdapter(hint).json_schema(schema_generator=_Brief)
    except (PydanticUserError, TypeError, ValueError):
        return False
    return True


def mistakes(error: ValidationError) -> str:
    """Pydantic's findings as one readable text."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in found[:_SHOWN]]
    rest = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
    return "; ".join(told) + rest


def wanted(schema: Plain) -> str:
    """What a schema asks for in a few words, such as `order_id: string, limit?: integer`."""
    required = schema.get("required", ())
    each = [
        f"{name}{'' if name in required else '?'}: {_kind(kind)}" for name, kind in schema.get("properties", {}).items()
    ]
    return ", ".join(each) or "no arguments"


def _kind(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    if "const" in schema:
        return repr(schema["const"])
    if "anyOf" in schema:
        return " | ".join(map(_kind, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    named = schema.get("type", "any")
    return " | ".join(named) if isinstance(named, list) else str(named)
