"""What hooks and tools return: changes to the state, actions for a phase to come, effects for after the commit."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from postroom.mailbox.contracts import Termination
from postroom.mailbox.errands import Errand, as_data, from_data
from postroom.worker.core.state import State, Update, exclusive, merged


class Phase(StrEnum):
    """Where in a run hooks are asked, in this order."""

    RUN_START = "run_start"
    STEP_START = "step_start"
    BEFORE_INFERENCE = "before_inference"
    AFTER_INFERENCE = "after_inference"
    TOOL_GATE = "tool_gate"
    BEFORE_TOOL_EXECUTE = "before_tool_execute"
    AFTER_TOOL_EXECUTE = "after_tool_execute"
    STEP_END = "step_end"
    RUN_END = "run_end"


@dataclass(frozen=True, slots=True)
class Action:
    """Something to be handled in a phase, by the handler registered under `key`."""

    phase: Phase
    key: str
    payload: Any = None


@dataclass(frozen=True, slots=True)
class Effect:
    """Something to be done once the commit is through; if it fails, nothing else does."""

    key: str
    payload: Any = None


@dataclass(frozen=True, slots=True)
class Command:
    """Everything one hook or tool asks for; `stop` ends the run at the next boundary, the first to ask is heard.

    `errands` are owed to other threads with the very commit that keeps the rest.
    """

    updates: tuple[Update, ...] = ()
    actions: tuple[Action, ...] = ()
    effects: tuple[Effect, ...] = ()
    errands: tuple[Errand, ...] = ()
    stop: Termination | None = None

    def __add__(self, other: "Command") -> "Command":
        return Command(
            self.updates + other.updates,
            self.actions + other.actions,
            self.effects + other.effects,
            self.errands + other.errands,
            self.stop or other.stop,
        )

    def __bool__(self) -> bool:
        return bool(self.updates or self.actions or self.effects or self.errands or self.stop)


NOTHING = Command()


def together(state: State, commands: Iterable[Command]) -> Command:
    """Commands made side by side as one, in order; a conflict on an exclusive key is an error."""
    known = tuple(commands)
    return Command(
        merged(state, (command.updates for command in known)),
        tuple(action for command in known for action in command.actions),
        tuple(effect for command in known for effect in command.effects),
        tuple(errand for command in known for errand in command.errands),
        next((command.stop for command in known if command.stop), None),
    )


def compatible(state: State, commands: Iterable[Command]) -> tuple[Command, tuple[int, ...]]:
    """As many of the commands as fit together, first come first served, and the places of those left over."""
    taken: set[str] = set()
    kept = NOTHING
    left: list[int] = []
    for place, command in enumerate(commands):
        mine = exclusive(state, command.updates)
        if taken & mine:
            left.append(place)
            continue
        taken |= mine
        kept += command
    return kept, tuple(left)


def as_plain(command: Command) -> list[Any]:
    """All of it as data for the journal, but for effects: those of a call that finished are not repeated."""
    return [
        [[update.key, update.value] for update in command.updates],
        [[action.phase.value, action.key, action.payload] for action in command.actions],
        command.stop.as_dict() if command.stop else None,
        *([[as_data(errand) for errand in command.errands]] if command.errands else []),
    ]


def from_plain(data: list[Any]) -> Command:
    """The command of journaled data."""
    updates, actions, stop, *rest = data
    return Command(
        tuple(Update(key, value) for key, value in updates),
        tuple(Action(Phase(phase), key, payload) for phase, key, payload in actions),
        errands=tuple(from_data(each) for errands in rest for each in errands),
        stop=Termination.model_validate(stop) if stop else None,
    )
