"""Decisions as the command line gives them: one in its arguments, or several in a file."""

import argparse
import sys
from pathlib import Path
from typing import Any

from postroom.mailbox.contracts import Decision, DecisionAction, parse
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.foreign import from_json
from postroom.mailbox.ids import new_id

# What says of a single decision what a file says of each.
_OF_ONE = ("target", "action", "id", "result", "arguments", "reason")
_JSON = frozenset({"result", "arguments"})


def add_options(decide: argparse.ArgumentParser) -> None:
    """What a decision may say, and where several are found."""
    decide.add_argument("target", metavar="TICKET|CALL", nargs="?")
    decide.add_argument("action", choices=[action.value for action in DecisionAction], nargs="?")
    decide.add_argument("--result", metavar="JSON", help="the answer, which `answer` cannot do without")
    decide.add_argument("--arguments", metavar="JSON", help="an object: carry the call out with these instead")
    decide.add_argument("--reason", help="what the model is told of a refusal")
    decide.add_argument("--by", help="who decides")
    decide.add_argument("--id", help="the decision's own id: the same one twice is one")
    decide.add_argument("--file", help="JSON list of decisions, all or none: target, action, result, … (- for stdin)")


def decisions_of(given: argparse.Namespace) -> list[Decision]:
    """The decisions that a command line stands for."""
    one = {name: value for name in _OF_ONE if (value := getattr(given, name)) is not None}
    if given.file is not None:
        if one:
            raise InvalidInput(f"with --file the decisions stand in the file; leave {', '.join(one)} out")
        return [_decision(each, given.by) for each in _several(given.file)]
    if given.target is None or given.action is None:
        raise InvalidInput("decide needs a ticket or call and an action, or --file with several decisions")
    read = {name: _json(value, f"--{name}") if name in _JSON else value for name, value in one.items()}
    return [_decision(read, given.by)]


def _several(place: str) -> list[Any]:
    try:
        text = sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidInput(f"{place} cannot be read: {error.strerror}") from None
    found = _json(text, place)
    if not isinstance(found, list) or not found:
        raise InvalidInput(f"{place} must hold a JSON list of one decision or more")
    return found


def _decision(fields: Any, by: str | None) -> Decision:
    if not isinstance(fields, dict):
        raise InvalidInput(f"a decision is an object with target and action, not {type(fields).__name__}")
    found = parse(Decision, {"id": new_id(), "by": by, **fields})
    if found.action is DecisionAction.ANSWER and "result" not in fields:
        raise InvalidInput(f"the answer to {found.target} is missing; give its result")
    return found


def _json(text: str, what: str) -> Any:
    try:
        return from_json(text.encode("utf-8", "replace"))
    except ValueError as error:
        raise InvalidInput(f"{what} is not JSON: {error}; a text stands in double quotes") from None
