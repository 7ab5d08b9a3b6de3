"""Messages for the model that never enter the log: reminders, facts of the moment, instructions for a while.

Hooks and tools add them under a key. Whether one is taken is decided when it is added; what was taken waits in the
run's state and is placed among the messages of the next request. The state is plain data:

    {"waiting": {key: {target, priority, once, digest, message}}, "taken": {key: [step, digest]}}
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from postroom.mailbox.contract import Contract
from postroom.mailbox.messages import ContentBlock, Visibility
from postroom.worker.core.state import Merge, Scope, State, StateKey, Update

Plain = dict[str, Any]


class Target(StrEnum):
    """Where a message is placed, from the beginning of a request to its end."""

    SYSTEM = "system"
    SESSION = "session"
    CONVERSATION = "conversation"
    SUFFIX_SYSTEM = "suffix_system"


class ContextMessage(Contract):
    """A message for the model alone. A later one of the same key replaces it.

    With `cooldown_turns` the same content is taken again only after so many steps. It is placed once, a `persistent`
    one in every step from then on, unless the first is to consume it (`consume_after_emit`).
    """

    key: Annotated[str, Field(min_length=1, max_length=256)]
    content: Annotated[tuple[ContentBlock, ...], Field(min_length=1)]
    role: Literal["system", "user", "assistant"] = "system"
    visibility: Visibility = Visibility.INTERNAL
    target: Target = Target.SYSTEM
    cooldown_turns: Annotated[int, Field(ge=0)] = 0
    persistent: bool = False
    consume_after_emit: bool = False
    priority: int = 0

    @field_validator("content", mode="before")
    @classmethod
    def _words_alone(cls, content: Any) -> Any:
        return ({"type": "text", "text": content},) if isinstance(content, str) else content


def add(message: ContextMessage, step: int) -> Update:
    """Asks for a message to be placed; `step` is the one that comes."""
    said = {"role": message.role, "content": message.as_dict()["content"]}
    if message.visibility is not Visibility.ALL:
        said["visibility"] = message.visibility.value
    entry = {
        "target": message.target.value,
        "priority": message.priority,
        "once": message.consume_after_emit or not message.persistent,
        "digest": _digest(said["content"]),
        "message": said,
    }
    return CONTEXT_MESSAGES.update(
        {"add": message.key, "entry": entry, "step": step, "cooldown": message.cooldown_turns}
    )


def due(state: State) -> tuple[tuple[str, Plain], ...]:
    """What is to be placed in the next request, in order: keys with their entries."""
    waiting = state[CONTEXT_MESSAGES].get("waiting", {})
    return tuple(sorted(waiting.items(), key=lambda found: (_RANK[found[1]["target"]], found[1]["priority"], found[0])))


def emitted(placed: Iterable[tuple[str, Plain]]) -> Update:
    """Says that these were placed, so that those meant for once go; one replaced in the meantime stays."""
    return CONTEXT_MESSAGES.update({"emitted": {key: entry["digest"] for key, entry in placed if entry["once"]}})


def placed(messages: Sequence[Plain], due: Sequence[tuple[str, Plain]]) -> tuple[Plain, ...]:
    """The messages with what is due among them.

    `system` comes right after the system prompt, `session` and then `conversation` after all system messages at the
    beginning, `suffix_system` at the very end.
    """
    if not due:
        return tuple(messages)
    of: dict[str, list[Plain]] = {target: [] for target in Target}
    for _, entry in due:
        of[entry["target"]].append(entry["message"])
    leading = next((place for place, each in enumerate(messages) if each["role"] != "system"), len(messages))
    prompt = min(leading, 1)
    return (
        *messages[:prompt],
        *of[Target.SYSTEM],
        *messages[prompt:leading],
        *of[Target.SESSION],
        *of[Target.CONVERSATION],
        *messages[leading:],
        *of[Target.SUFFIX_SYSTEM],
    )


_RANK = {target.value: place for place, target in enumerate(Target)}


def _digest(content: Any) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()


def _applied(value: Plain, change: Plain) -> Plain:
    waiting, taken = value.get("waiting", {}), value.get("taken", {})
    if "emitted" in change:
        over = change["emitted"]
        left = {key: entry for key, entry in waiting.items() if over.get(key) != entry["digest"]}
        return {"waiting": left, "taken": taken}
    key, entry, step = change["add"], change["entry"], change["step"]
    if not _is_welcome(taken.get(key), entry["digest"], step, change["cooldown"]):
        return value
    return {"waiting": {**waiting, key: entry}, "taken": {**taken, key: [step, entry["digest"]]}}


def _is_welcome(last: list[Any] | None, digest: str, step: int, cooldown: int) -> bool:
    return not cooldown or not last or last[1] != digest or step - last[0] >= cooldown


CONTEXT_MESSAGES: StateKey[Plain, Plain] = StateKey(
    "runtime.context_messages", {}, _applied, Scope.RUN, Merge.COMMUTATIVE
)
