"""Structured output: a final answer must be JSON of the shape its agent promises, or the model hears what is wrong."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from postroom.worker.core import schema
from postroom.worker.model.base import OutputSchema

Plain = dict[str, Any]
# The shape of an answer: a pydantic model or a JSON schema.
Shape = type[BaseModel] | Plain

_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer as data."""

    value: Any


@dataclass(frozen=True, slots=True)
class Refused:
    """What is wrong with an answer, a line each."""

    problems: tuple[str, ...]

    @property
    def repair(self) -> str:
        """What the model is told, to do better."""
        told = "\n".join(f"- {problem}" for problem in self.problems)
        return f"Your answer does not have the required shape:\n{told}\nAnswer again, with the corrected JSON alone."


def asked(shape: Shape, name: str = "answer") -> OutputSchema:
    """The shape as providers are told; what is no JSON schema is refused here and not in the middle of a run."""
    if isinstance(shape, dict):
        schema.check(shape, f"the output schema {name!r}")
        return OutputSchema(name, shape)
    return OutputSchema(shape.__name__, shape.model_json_schema())


def checked(answer: str, shape: Shape) -> Accepted | Refused:
    """The answer as data of its shape, or what is wrong with it. JSON in a fence is as good as JSON alone."""
    text, problem = _json(answer)
    if problem:
        return Refused((problem,))
    return _by_schema(text, shape) if isinstance(shape, dict) else _by_model(text, shape)


def _by_schema(text: str, shape: Plain) -> Accepted | Refused:
    value = json.loads(text)
    found = schema.problems(shape, value)
    return Refused(found) if found else Accepted(value)


def _by_model(text: str, shape: type[BaseModel]) -> Accepted | Refused:
    # From the text and not from data: a model takes more from JSON, such as dates, than from Python.
    try:
        return Accepted(shape.model_validate_json(text).model_dump(mode="json"))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return Refused(schema.bounded([(_path(each["loc"]), each["msg"]) for each in found]))


def _json(answer: str) -> tuple[str, str]:
    """The JSON in an answer, or what is wrong with it."""
    problem = "the answer is empty"
    for text in _candidates(answer):
        try:
            json.loads(text, parse_constant=_no_constant)
        except RecursionError:
            problem = "the answer is nested too deeply"
        except ValueError as error:
            problem = f"the answer is not JSON: {error}"
        else:
            return text, ""
    return "", problem


def _candidates(answer: str) -> Iterator[str]:
    """The answer as it is, or else each fenced part of it; a problem is told of the last, which is what was meant."""
    if text := answer.strip():
        yield text
    yield from (match.group(1).strip() for match in _FENCED.finditer(answer))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _path(where: tuple[int | str, ...]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
