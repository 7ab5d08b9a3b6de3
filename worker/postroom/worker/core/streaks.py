"""Tools that fail again and again: how long a model may go on trying.

An error is given to the model as the result of its call, so that it can try otherwise. A tool that has failed in three
rounds in a row gets one more: in that one the model is told all that went wrong. The next failure stops the run. One
success of the tool, and all is forgotten. Streaks are part of the run's state, as plain data:

    {tool: [error, …]}
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from postroom.worker.core.calls import SUCCESS, Outcome
from postroom.worker.core.limits import cut
from postroom.worker.core.state import StateKey

Streaks = dict[str, list[str]]
TOOL_STREAKS: StateKey[Streaks, Streaks] = StateKey("runtime.tool_streaks", {})

LIMIT = 3
# Of each error so much is kept.
ERROR_CHARACTERS = 500
# Where an outcome says what kind of error it is.
KIND = "error_kind"


class ErrorKind(StrEnum):
    """What is to be done about an error is in its kind."""

    INVALID_ARGUMENTS = "invalid_arguments"
    FAILED = "failed"
    TRANSIENT = "transient"
    FATAL = "fatal"


class Patience(Protocol):
    """How often a call is repeated, and how many seconds lie in between."""

    @property
    def times(self) -> int: ...
    @property
    def first_wait(self) -> float: ...
    @property
    def longest_wait(self) -> float: ...


@dataclass(frozen=True, slots=True)
class GoOn:
    """The model has the errors as results and may try again; `note` is said to it when it is the last time."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The run stops."""

    code: str
    reason: str


def kind_of(outcome: Outcome) -> ErrorKind:
    """The kind of error an outcome says it is; just failed, if it says nothing we know."""
    said = outcome.metadata.get(KIND)
    return ErrorKind(said) if said in set(ErrorKind) else ErrorKind.FAILED


def retry_wait(outcome: Outcome, attempt: int, patience: Patience, idempotent: bool, chance: float) -> float | None:
    """Seconds until a failed call is repeated without asking the model, or None; `chance` is a number from 0 to 1.

    Only what may pass by itself is repeated, and only if doing it twice is as good as once.
    """
    if not (outcome.failed and idempotent and kind_of(outcome) is ErrorKind.TRANSIENT and attempt <= patience.times):
        return None
    # Beyond sixty doublings everything is longer than the longest.
    return chance * min(patience.longest_wait, patience.first_wait * 2.0 ** min(attempt - 1, 60))


def after_round(
    streaks: Streaks, outcomes: Iterable[tuple[str, Outcome]], limit: int = LIMIT
) -> tuple[Streaks, GoOn | GiveUp]:
    """The streaks after all calls of one step, by tool, and what follows from them.

    Calls made side by side count as one try: the model saw none of their errors before it made the others.
    """
    known = list(outcomes)
    for tool, outcome in known:
        if outcome.failed and kind_of(outcome) is ErrorKind.FATAL:
            return {}, GiveUp("tool_failed", f"{tool} cannot go on: {_error(outcome)}")
    worked = {tool for tool, outcome in known if outcome.status == SUCCESS}
    errors = {tool: _error(outcome) for tool, outcome in known if outcome.failed and tool not in worked}
    now = {tool: said for tool, said in streaks.items() if tool not in worked}
    now |= {tool: [*now.get(tool, ()), error] for tool, error in errors.items()}
    for tool in errors:
        if len(now[tool]) > limit:
            reason = f"{tool} failed {len(now[tool])} times in a row, the last time with: {errors[tool]}"
            return {}, GiveUp("tool_errors", reason)
    return now, GoOn("\n\n".join(_note(tool, now[tool]) for tool in errors if len(now[tool]) == limit))


def _error(outcome: Outcome) -> str:
    return cut(outcome.message or "no reason given", ERROR_CHARACTERS)[0]


def _note(tool: str, errors: list[str]) -> str:
    told = "\n".join(f"{place}. {error}" for place, error in enumerate(errors, 1))
    return (
        f"The tool {tool} has failed {len(errors)} times in a row:\n{told}\n"
        "If it fails once more, the run ends. Do it differently, use another tool, or answer with what you have."
    )
