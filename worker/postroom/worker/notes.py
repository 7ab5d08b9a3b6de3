"""How open calls stand in a run's call journal, and how they are read back by whoever goes on with the run."""

from collections.abc import Iterable
from typing import Any

from postroom.mailbox import codec, records
from postroom.mailbox.commit import Batch
from postroom.mailbox.contracts import CallRecord, Decision, DecisionAction
from postroom.mailbox.lifecycle import CALL_DONE, CallStatus, TicketStatus
from postroom.mailbox.lock import Claim
from postroom.mailbox.log import Entry
from postroom.mailbox.ops import Fields
from postroom.worker.core import command
from postroom.worker.core.calls import OpenCall, Outcome
from postroom.worker.core.render import result_message, result_text

Plain = dict[str, Any]


def has_moved(call: OpenCall, before: OpenCall) -> bool:
    """Whether a call stands elsewhere than it did."""
    return call.status is not before.status or call.ticket != before.ticket or call.outcome is not before.outcome


def note(batch: Batch, call: OpenCall, before: OpenCall | None) -> None:
    """Writes where a call stands; what has not changed is not written again."""
    if before is not None and not has_moved(call, before):
        return
    if call.status is CallStatus.SUSPENDED and call.ticket:
        batch.raise_ticket(call.id, call.ticket.as_dict())
        for errand in call.errands:
            batch.send(errand)
    else:
        batch.note_call(call.id, call.status)
    if before is None:
        batch.calls[f"name:{call.id}"] = call.name
        batch.calls[f"index:{call.id}"] = call.index
    if call.outcome is not None and call.status in CALL_DONE:
        _note_outcome(batch, call, call.outcome)


def _note_outcome(batch: Batch, call: OpenCall, outcome: Outcome) -> None:
    batch.calls[f"text:{call.id}"] = codec.fitting(result_text(outcome), batch.limit)
    rest = {name: value for name, value in result_message(call.id, outcome).items() if name == "metadata"}
    if rest:
        batch.calls[f"body:{call.id}"] = codec.encode(rest, batch.limit)
    batch.calls[f"made:{call.id}"] = codec.encode(_plain(outcome), batch.limit)


def _plain(outcome: Outcome) -> Plain:
    """All of an outcome but its effects, which happen once at most."""
    made: Plain = {"status": outcome.status, "data": outcome.data, "message": outcome.message}
    if outcome.metadata:
        made["metadata"] = outcome.metadata
    if outcome.command:
        made["command"] = command.as_plain(outcome.command)
    if outcome.ends:
        made["ends"] = True
    if outcome.handoff:
        made["handoff"] = outcome.handoff
    if outcome.full:
        made["full"] = outcome.full
    return made


def _outcome(made: Plain) -> Outcome:
    return Outcome(
        made["status"],
        made["data"],
        made["message"],
        made.get("metadata", {}),
        command=command.from_plain(made["command"]) if "command" in made else command.NOTHING,
        ends=made.get("ends", False),
        handoff=made.get("handoff", ""),
        full=made.get("full", ""),
    )


def asked(claim: Claim, run_id: str) -> Entry | None:
    """The assistant's message whose calls are open."""
    if not claim.calls:
        return None
    open_ids = {name.removeprefix("status:") for name in claim.calls if name.startswith("status:")}
    for entry in reversed(claim.log):
        calls = entry.message.get("tool_calls", ())
        if entry.run == run_id and any(call["id"] in open_ids for call in calls):
            return entry
    return None


def open_calls(journal: Fields, message: Plain | None) -> tuple[OpenCall, ...]:
    """The calls of a journal, each with its arguments as the model gave them."""
    arguments = {call["id"]: call["arguments"] for call in (message or {}).get("tool_calls", ())}
    return tuple(
        OpenCall(
            record.call_id,
            record.name or (record.ticket.tool if record.ticket else ""),
            arguments.get(record.call_id, {}),
            record.index,
            record.status,
            record.ticket,
            _decision(record),
            _made(journal, record.call_id),
        )
        for record in records.call_records(journal)
    )


def _made(journal: Fields, call_id: str) -> Outcome | None:
    made = journal.get(f"made:{call_id}")
    return _outcome(codec.decode(made)) if made else None


def _decision(record: CallRecord) -> Decision | None:
    """A person's answer, or what stands for it when nobody answered in time."""
    if record.decision or record.ticket_status is not TicketStatus.EXPIRED or not record.ticket:
        return record.decision
    action = DecisionAction.DENY_AND_STOP if record.ticket.on_expiry == "stop" else DecisionAction.DENY
    return Decision(id="expired", target=record.call_id, action=action, reason="nobody decided in time")


def by_id(calls: Iterable[OpenCall]) -> dict[str, OpenCall]:
    """Calls by their ids."""
    return {call.id: call for call in calls}
