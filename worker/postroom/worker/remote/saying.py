"""What a remote agent is told, and what a thread remembers of having told it. Nothing here acts."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from postroom.mailbox.backends import TASK_PREFIX
from postroom.worker.loop import Standing
from postroom.worker.remote.tasks import WAITS, Task

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """What was asked last: of whom, by which step of which run, as which task, and how that stood.

    It is committed before anybody looks what becomes of the task, so that whoever takes the run up looks too and does
    not ask again. `since` is when the agent took the task on.
    """

    url: str
    run: str
    step: int
    task: str
    context: str
    state: str
    since: int

    def after(self, task: Task) -> "Mark":
        """The mark as its task stands now."""
        return Mark(self.url, self.run, self.step, task.id, task.context or self.context, task.state, self.since)


def state_key(agent: str) -> str:
    """Where a thread remembers what it asked an agent."""
    return f"{TASK_PREFIX}{agent}"


def remembered(standing: Standing, url: str) -> Mark | None:
    """What the thread has asked this agent last, if it was the one at this address."""
    known = standing.thread_state.get(state_key(standing.agent))
    return Mark(**known) if known and known.get("url") == url else None


def kept(agent: str, mark: Mark) -> Plain:
    """The mark as the thread's state has it."""
    return {state_key(agent): asdict(mark)}


def message(standing: Standing, mark: Mark | None) -> Plain:
    """The message for the agent: an answer to what it waits for, or something new in the same conversation.

    Its id follows from run and step, so that one sent twice can be told by whoever gets it.
    """
    told: Plain = {
        "messageId": f"{standing.run_id}.{standing.step}",
        "contextId": mark.context if mark else standing.thread_id,
        "role": "ROLE_USER",
        "parts": parts(standing, bool(mark and mark.run == standing.run_id)),
    }
    return {**told, "taskId": mark.task} if mark and mark.state in WAITS else told


def parts(standing: Standing, begun: bool) -> list[Plain]:
    """The words of the run that are for others to see: since the agent's last, once it has begun to listen."""
    own = [entry.message for entry in standing.log if entry.run == standing.run_id]
    if begun:
        spoken = [place for place, each in enumerate(own) if each["role"] == "assistant"]
        own = own[spoken[-1] + 1 if spoken else 0 :]
    heard = ("user", "tool") if begun else ("user",)
    visible = [each for each in own if each["role"] in heard and each.get("visibility", "all") == "all"]
    return [part for each in visible for part in _parts(each.get("content", ()))]


def _parts(blocks: Iterable[Plain]) -> list[Plain]:
    return [found for block in blocks if (found := _part(block))]


def _part(block: Plain) -> Plain | None:
    if block["type"] == "text":
        return {"text": block["text"]}
    source = block.get("source")
    if not source:
        return None
    named = {"filename": block["title"]} if block.get("title") else {}
    if source["kind"] == "url":
        return {"url": source["url"], **named}
    return {"raw": source["data"], "mediaType": source["media_type"], **named}
