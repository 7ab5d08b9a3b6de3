"""Tasks of a remote agent: what it says of them as plain values, what is new, and what that means for a run."""

from dataclasses import dataclass, replace
from typing import Any, Final

from postroom.mailbox.contracts import Termination
from postroom.mailbox.lifecycle import TerminationKind, WaitingReason

Plain = dict[str, Any]

COMPLETED: Final = "TASK_STATE_COMPLETED"
CANCELED: Final = "TASK_STATE_CANCELED"
INPUT_REQUIRED: Final = "TASK_STATE_INPUT_REQUIRED"
AUTH_REQUIRED: Final = "TASK_STATE_AUTH_REQUIRED"
# How a run ends with its task, and what it waits for; every other state is work.
ENDS: Final[dict[str, tuple[TerminationKind, str | None]]] = {
    COMPLETED: (TerminationKind.NATURAL_END, None),
    "TASK_STATE_FAILED": (TerminationKind.ERROR, "remote_failed"),
    "TASK_STATE_REJECTED": (TerminationKind.ERROR, "remote_rejected"),
    CANCELED: (TerminationKind.CANCELLED, "remote_canceled"),
}
WAITS: Final[dict[str, WaitingReason]] = {
    INPUT_REQUIRED: WaitingReason.INPUT,
    AUTH_REQUIRED: WaitingReason.APPROVAL,
}
LONGEST_MESSAGE: Final = 2000


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something the agent has made, in parts."""

    id: str
    name: str
    parts: tuple[Plain, ...]

    @property
    def words(self) -> str:
        """Its words alone."""
        return words_of(self.parts)

    def as_dict(self) -> Plain:
        """As it is kept."""
        return {"id": self.id, "name": self.name, "parts": list(self.parts)}


@dataclass(frozen=True, slots=True)
class Task:
    """A task as far as is known. `note` is what the agent says of its state; `heard` are the messages it has had."""

    id: str
    context: str
    state: str
    note: str = ""
    artifacts: tuple[Artifact, ...] = ()
    heard: frozenset[str] = frozenset()
    last_said: str = ""

    @property
    def settled(self) -> bool:
        """Whether it is over, or somebody else has to act."""
        return self.state in ENDS or self.state in WAITS

    @property
    def words(self) -> str:
        """What was said so far. It only ever grows, unless the agent takes something back."""
        said = [artifact.words for artifact in self.artifacts]
        if self.settled:
            said.append(self.note or ("" if any(said) else self.last_said))
        return "\n\n".join(filter(None, said))

    @property
    def termination(self) -> Termination:
        """How a run ends whose task is over."""
        kind, code = ENDS[self.state]
        told = None if kind is TerminationKind.NATURAL_END else (self.note or "no reason given")[:LONGEST_MESSAGE]
        return Termination(kind=kind, code=code, message=told)


@dataclass(frozen=True, slots=True)
class Said:
    """An answer without a task."""

    words: str
    parts: tuple[Plain, ...]


def words_of(parts: Any) -> str:
    """The words among parts."""
    return "".join(part["text"] for part in parts or () if isinstance(part.get("text"), str))


def read_reply(data: Plain) -> Task | Said:
    """What a message was answered with."""
    if "task" in data:
        return read_task(data["task"])
    said = data["message"]
    _name(said["messageId"])
    parts = _parts(said)
    return Said(words_of(parts), parts)


def read_task(data: Plain) -> Task:
    """A whole task."""
    history = data.get("history") or ()
    said = [each for each in history if each.get("role") == "ROLE_AGENT"]
    return Task(
        _name(data["id"]),
        _name(data.get("contextId") or ""),
        _state(data["status"]),
        _note(data["status"]),
        tuple(_artifact(each) for each in data.get("artifacts") or ()),
        frozenset(each.get("messageId", "") for each in history),
        words_of(said[-1].get("parts")) if said else "",
    )


def fold(task: Task, event: Plain) -> Task:
    """The task after an event of its stream."""
    if "task" in event:
        return read_task(event["task"])
    if "statusUpdate" in event:
        status = event["statusUpdate"]["status"]
        return replace(task, state=_state(status), note=_note(status))
    if "artifactUpdate" in event:
        update = event["artifactUpdate"]
        return replace(
            task, artifacts=_added(task.artifacts, _artifact(update["artifact"]), bool(update.get("append")))
        )
    return task


def _added(known: tuple[Artifact, ...], new: Artifact, append: bool) -> tuple[Artifact, ...]:
    for place, old in enumerate(known):
        if old.id == new.id:
            parts = _joined(old.parts, new.parts) if append else new.parts
            return (*known[:place], replace(new, parts=parts, name=new.name or old.name), *known[place + 1 :])
    return (*known, new)


def _joined(known: tuple[Plain, ...], more: tuple[Plain, ...]) -> tuple[Plain, ...]:
    """Parts with those that follow. Words that follow words become one part: a long stream has many of them."""
    if known and more and known[-1].keys() == more[0].keys() == {"text"}:
        return (*known[:-1], {"text": known[-1]["text"] + more[0]["text"]}, *more[1:])
    return (*known, *more)


def _artifact(data: Plain) -> Artifact:
    return Artifact(_name(data["artifactId"]), str(data.get("name") or ""), _parts(data))


def _parts(data: Plain) -> tuple[Plain, ...]:
    parts = tuple(data.get("parts") or ())
    if not all(isinstance(part, dict) for part in parts):
        raise TypeError("not parts")
    return parts


def _state(status: Plain) -> str:
    """Some leave out a state they have no name for."""
    return str(status.get("state") or "")


def _note(status: Plain) -> str:
    return words_of((status.get("message") or {}).get("parts"))


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 1024:
        raise TypeError(f"not an id: {value!r:.60}")
    return value
