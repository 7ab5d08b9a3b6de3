"""What a parent hears of its child: the answer to the call that waits for it, mail to its thread, or an event."""

import json
from dataclasses import dataclass
from typing import Any

from postroom.mailbox import approvals, inbox, journal, keys, records, relay
from postroom.mailbox.contracts import (
    Decision,
    DecisionAction,
    Letter,
    Message,
    Parent,
    RunRecord,
    RunRequest,
    Termination,
    Visibility,
    message,
)
from postroom.mailbox.errands import Errand
from postroom.mailbox.errors import AlreadyDecided, NotFound, RunDone, TicketExpired
from postroom.mailbox.lifecycle import TERMINAL, TerminationKind
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings

Plain = dict[str, Any]

# The parent is gone, or somebody else has answered in the child's place.
MOOT = (NotFound, RunDone, AlreadyDecided, TicketExpired)

_OUT_OF_TIME = frozenset({"timeout", "wall_clock", "deadline"})
_STATUS = {
    TerminationKind.NATURAL_END: "completed",
    TerminationKind.BEHAVIOR_REQUESTED: "completed",
    TerminationKind.CANCELLED: "cancelled",
}
_KINDS = {"completed": "completed", "cancelled": "cancelled"}


def status_of(termination: Termination) -> str:
    """How a child's end is called by its parent."""
    if termination.kind is TerminationKind.STOPPED and termination.code in _OUT_OF_TIME:
        return "timeout"
    return _STATUS.get(termination.kind, "failed")


def facts(thread: str, errand: Errand) -> list[Op[Any]]:
    """What must be known to report: the run, and the event that is reported."""
    place = f"{errand.event}-0"
    event = Op(("XRANGE", keys.events(thread, errand.run), place, place), journal.told_last)
    return [records.get_run(thread, errand.run), event]


def reported(settings: Settings, errand: Errand, known: list[Any]) -> Op[Any] | None:
    """The report; nothing when the run has expired meanwhile."""
    record, told = known
    for fact in known:
        if isinstance(fact, BaseException) and not isinstance(fact, NotFound):
            raise fact
    if not isinstance(record, RunRecord) or record.parent is None:
        return None
    event = told.event if told else {"type": TERMINAL}
    if event["type"] != TERMINAL:
        return Told(record.parent, _shown_above(record, event)).relay()
    return _finished(settings, record.parent, record.run_id, _result(record, event))


def never_started(settings: Settings, request: RunRequest, why: str) -> Op[Any]:
    """The report of a child that was refused."""
    parent = request.parent
    assert parent  # noqa: S101 - only a child is reported
    result = {"agent_id": request.agent, "status": "failed", "response": "", "output": None, "steps": 0, "error": why}
    return _finished(settings, parent, request.run_id, result)


def _result(record: RunRecord, event: Plain) -> Plain:
    found = event.get("result")
    said: Plain = found if isinstance(found, dict) else {"output": found}
    end = record.termination or Termination(kind=TerminationKind.ERROR)
    result: Plain = {
        "agent_id": record.agent,
        "status": status_of(end),
        "response": said.get("response", ""),
        # What a tool ended the run with is its output, whatever shape it has.
        "output": said.get("output", None if "response" in said else found),
        "steps": record.step,
        "usage": record.usage.as_dict(),
    }
    if result["status"] != "completed":
        result["error"] = ": ".join(filter(None, (end.code or end.kind.value, end.message)))
    return result


def _finished(settings: Settings, parent: Parent, child: str, result: Plain) -> Op[Any]:
    if parent.reports == "answer" and parent.call_id:
        answer = Decision(
            id=child, target=parent.call_id, action=DecisionAction.ANSWER, result=result, by=f"run {child}"
        )
        return approvals.decide(parent.thread_id, parent.run_id, [answer], settings.max_body_bytes)
    kind = _KINDS.get(result["status"], "failed")
    return inbox.send(task_mail(parent, child, f"{child}.end", kind, _shown(kind, result)), settings)


def _shown(kind: str, result: Plain) -> Plain:
    return {"result": result} if kind == "completed" else {"error": result.get("error", ""), "result": result}


@dataclass(frozen=True, slots=True)
class Told:
    """An event of a run below, on its way up to `parent`."""

    parent: Parent
    event: Plain

    def relay(self) -> Op[Any]:
        """Tells it to the followers of the parent."""
        return relay.relay(self.parent.thread_id, self.parent.run_id, [self.event])

    def above(self, record: RunRecord) -> "Told | None":
        """The same one level up, if somebody listens there."""
        return Told(record.parent, self.event) if record.parent and record.parent.reports else None


def waiting_event(known: list[Any]) -> Told | None:
    """What a run waits for, as its parent was told; nothing when it does not wait."""
    record, told = known
    if not isinstance(record, RunRecord) or not record.parent or not isinstance(told, journal.Entry):
        return None
    return None if told.event["type"] == TERMINAL else Told(record.parent, _shown_above(record, told.event))


def _shown_above(record: RunRecord, event: Plain) -> Plain:
    call_id = record.parent.call_id if record.parent else None
    return relay.child_event(record.run_id, record.thread_id, record.agent, call_id, event)


def task_mail(parent: Parent, task_id: str, mail_id: str, kind: str, about: Plain) -> Letter:
    """What a background task has to say to the thread that owns it."""
    return Letter(
        id=f"task:{mail_id}",
        thread_id=parent.thread_id,
        message=task_message(task_id, kind, about),
        sender=task_id,
        kind="task",
    )


def task_message(task_id: str, kind: str, about: Plain) -> Message:
    """The same as the model reads it."""
    words = json.dumps(about, ensure_ascii=False, separators=(",", ":"))
    text = f'<background-task-event kind="{kind}" task_id="{task_id}">{words}</background-task-event>'
    noted = {"task_event": {"task_id": task_id, "kind": kind, **about}}
    return message("user", text, visibility=Visibility.INTERNAL, metadata=noted)
