"""Getting runs into a thread's lane and out of it again: submit, cancel, interrupt."""

from dataclasses import dataclass
from typing import Any

from postroom.mailbox import codec, inbox
from postroom.mailbox.contracts import OnBusy, RunRequest
from postroom.mailbox.doorbell import Doorbell, doorbell
from postroom.mailbox.keys import check_token
from postroom.mailbox.ops import Op, counted, counted_lists, on_thread, pairs
from postroom.mailbox.settings import Settings


@dataclass(frozen=True, slots=True)
class Submitted:
    """Proof that a run is in Redis: `queued`, `delayed`, `steered` into another run, or there `again`."""

    outcome: str
    run_id: str
    doorbell: Doorbell | None
    ended: list[str]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A cancel's outcome: `requested` of a working run, `cancelled` on the spot, or `done` before."""

    outcome: str
    run_id: str
    doorbell: Doorbell | None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A thread's new epoch, the run that was open, the runs that ended, and who comes next."""

    epoch: int
    open: str
    ended: list[str]
    doorbell: Doorbell | None


def submit(request: RunRequest, settings: Settings, now: int | None = None) -> Op[Submitted]:
    """Accepts a run; the same run id or idempotency key again changes nothing."""
    limit = settings.max_body_bytes
    messages = [each.as_dict() for each in request.messages]
    # A steering submission may turn into mail, one per message, each with an id that follows from the run's.
    mails = [
        [f"steer:{request.run_id}.{i}", *inbox.fields("steer", "", each, limit)]
        for i, each in enumerate(messages)
        if request.on_busy is OnBusy.STEER
    ]
    args = [
        request.run_id,
        request.on_busy.value,
        request.on_waiting.value,
        request.idempotency_key or "",
        request.priority,
        _or_empty(request.start_at),
        _or_empty(request.deadline),
        settings.max_lane,
        settings.max_mail,
        request.agent or "",
        request.queue,
        settings.run_retention_ms,
        settings.thread_retention_ms,
        settings.dedupe_ms,
        *counted(pairs(_record(request, messages, limit))),
        *counted_lists(mails),
    ]

    def parse(reply: Any) -> Submitted:
        outcome, run_id, bell, ended = reply
        return Submitted(outcome.decode(), run_id.decode(), doorbell(bell), [run.decode() for run in ended])

    return on_thread("submit", request.thread_id, now, args, parse)


def cancel(
    thread_id: str, run_id: str | None = None, code: str = "cancelled", request_id: str = "", now: int | None = None
) -> Op[Cancelled]:
    """Cancels a run in any state; without a run id, the thread's open run or else its next one.

    A caller that may retry such a request gives it an id, so that the retry means the same run.
    """

    if run_id:
        check_token(run_id, "run id")

    def parse(reply: Any) -> Cancelled:
        return Cancelled(reply[0].decode(), reply[1].decode(), doorbell(reply[2]))

    return on_thread("cancel", thread_id, now, (run_id or "", code, request_id), parse)


def interrupt(thread_id: str, code: str = "interrupted", now: int | None = None) -> Op[Interrupted]:
    """Clears the thread: a new epoch, queued runs superseded, the open one stopped."""

    def parse(reply: Any) -> Interrupted:
        epoch, open_run, ended, bell = reply
        return Interrupted(epoch, open_run.decode(), [run.decode() for run in ended], doorbell(bell))

    return on_thread("interrupt", thread_id, now, (code,), parse)


def delete(thread_id: str, now: int | None = None) -> Op[int]:
    """Deletes an idle thread with all it holds; says how many runs went with it."""
    return on_thread("delete", thread_id, now, (), int)


def _record(request: RunRequest, messages: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """What only this run knows: scalars an operator wants in plain text, the rest as one body."""
    tools = [tool.as_dict() for tool in request.frontend_tools]
    body = {
        "messages": messages,
        "metadata": request.metadata,
        "overrides": request.overrides,
        "frontend_tools": tools,
        "budget": request.budget.as_dict() if request.budget else None,
    }
    fields: dict[str, Any] = {"request": codec.encode({k: v for k, v in body.items() if v}, limit)}
    if request.tenant:
        fields["tenant"] = request.tenant
    if request.webhook:
        fields["webhook"] = request.webhook
    if request.parent:
        fields["parent"] = codec.encode(request.parent.as_dict(), limit)
        fields["parent_run"] = request.parent.run_id
        if request.parent.reports:
            fields["reports"] = request.parent.reports
            fields["parent_thread"] = request.parent.thread_id
    return fields


def _or_empty(value: int | None) -> int | str:
    return "" if value is None else value
