"""What each verb of the client does, written once: a plan yields Redis ops and returns a value.

`client.Dispatcher` runs plans on a plain connection, `client.AsyncDispatcher` on an event loop.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypedDict, TypeVar, Unpack, cast

from postroom.mailbox import approvals, deliveries, errands, grants, inbox, keys, lane, lock, log, records, watch
from postroom.mailbox.contracts import (
    Decision,
    FrontendTool,
    Letter,
    Message,
    Parent,
    RunRecord,
    RunRequest,
    ThreadRecord,
    message,
    parse,
)
from postroom.mailbox.errors import InvalidInput, NotFound, PostroomError
from postroom.mailbox.ids import new_id
from postroom.mailbox.ops import Op
from postroom.mailbox.settings import Settings

T = TypeVar("T")
_NAMELESS = "the thread "
# A plan yields ops, each time for one round trip, and gets a list of values or errors back.
Plan = Generator[Iterable[Op[Any]], list[Any], T]
Input = str | Message | Sequence[Message]
# What may be given as a span from now on, and the moment that it stands for.
_MOMENTS = {"delay_ms": "start_at", "timeout_ms": "deadline"}


class Options(TypedDict, total=False):
    """How a run may be submitted."""

    thread: str | None
    run_id: str | None
    on_busy: str
    on_waiting: str
    idempotency_key: str | None
    priority: int
    queue: str
    start_at: int | None
    delay_ms: int | None
    deadline: int | None
    timeout_ms: int | None
    metadata: dict[str, Any] | None
    overrides: dict[str, Any] | None
    frontend_tools: Sequence[FrontendTool] | None
    tenant: str | None
    webhook: str | None
    parent: Parent | None


def one(op: Op[T]) -> Plan[T]:
    """A plan of a single op."""
    (value,) = yield [op]
    if isinstance(value, BaseException):
        raise value
    found: T = value
    return found


def all_of(ops: list[Op[Any]]) -> Plan[list[Any]]:
    """A plan of several ops in one round trip; the first error is raised."""
    values = yield ops
    for value in values:
        if isinstance(value, BaseException):
            raise value
    return values


def on_thread(thread: str, op: Op[T]) -> Plan[T]:
    """A plan of a single op on a thread; transitions say "the thread", which tells nobody which."""
    try:
        return (yield from one(op))
    except PostroomError as error:
        if not error.message.startswith(_NAMELESS):
            raise
        raise type(error)(f"thread {thread!r} {error.message.removeprefix(_NAMELESS)}") from None


def request(agent: str | None, input: Input, options: Options) -> RunRequest:  # noqa: A002 - the user's word
    """A checked request with the ids filled in."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    run_id = given.pop("run_id", None)
    ids = {"run_id": new_id() if run_id is None else run_id}
    # Only what was left out means a new one; an empty id is somebody's mistake.
    ids["thread_id"] = given.pop("thread", f"thread-{ids['run_id']}")
    return parse(RunRequest, {**ids, "agent": agent, "messages": messages_of(input), **given})


def messages_of(given: Input) -> tuple[Message, ...]:
    """Input as messages: words are a user's message."""
    if isinstance(given, str):
        return (message("user", given),)
    if isinstance(given, Message):
        return (given,)
    if not isinstance(given, Iterable):
        raise InvalidInput(f"the input must be a text, a message or several messages, not {type(given).__name__}")
    return tuple(given)


def submit(settings: Settings, /, agent: str | None, input: Input, **options: Unpack[Options]) -> Plan[lane.Submitted]:  # noqa: A002
    """Accepts a run; with `delay_ms` it starts that much later by the server's clock."""
    options = yield from _timed(options)
    wanted = request(agent, input, options)
    return (yield from on_thread(wanted.thread_id, lane.submit(wanted, settings)))


def _timed(options: Options) -> Plan[Options]:
    spans: dict[str, Any] = {name: span for name in _MOMENTS if (span := options.get(name)) is not None}
    rest: dict[str, Any] = {name: value for name, value in options.items() if name not in _MOMENTS}
    for name, span in spans.items():
        if not isinstance(span, int) or span < 0:
            raise InvalidInput(f"{name} {span!r} must be whole milliseconds, 0 or more")
        if rest.get(_MOMENTS[name]) is not None:
            raise InvalidInput(f"{name} and {_MOMENTS[name]} say the same thing twice; give one of them")
    if spans:
        now = yield from one(watch.clock())
        rest |= {_MOMENTS[name]: now + span for name, span in spans.items()}
    return cast(Options, rest)


def submit_many(settings: Settings, /, requests: Iterable[RunRequest]) -> Plan[list[Any]]:
    """Accepts many runs in one round trip; each result is a `Submitted` or the error of that one alone."""
    if not isinstance(requests, Iterable):
        raise InvalidInput(f"submit_many takes several requests, not {type(requests).__name__}")
    wanted = list(requests)
    refused: dict[int, PostroomError] = {}

    def accepted() -> Iterator[Op[lane.Submitted]]:
        for place, request in enumerate(wanted):
            try:
                yield lane.submit(_expect(RunRequest, request), settings)
            except PostroomError as error:
                refused[place] = error

    answers = iter((yield accepted()))
    return [refused.get(place) or next(answers) for place in range(len(wanted))]


def _expect(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise InvalidInput(f"this must be a {kind.__name__}, not {type(value).__name__}")
    return value


def locate(target: str) -> Plan[tuple[str, str | None]]:
    """Thread and run of an id that may name either; a run id comes first."""
    owner, exists = yield [records.thread_of(target), Op(("EXISTS", keys.thread(target)), int)]
    if isinstance(owner, str):
        return owner, target
    if exists == 1:
        return target, None
    raise NotFound(f"neither a run nor a thread is called {target!r}; it may have expired")


def cancel(settings: Settings, /, target: str, *, request_id: str = "") -> Plan[lane.Cancelled]:
    """Cancels a run, or by a thread's id its open run or else its next one; a retry gives the same request_id."""
    thread_id, run_id = yield from locate(target)
    return (yield from on_thread(thread_id, lane.cancel(thread_id, run_id, request_id=request_id)))


def interrupt(settings: Settings, /, thread: str) -> Plan[lane.Interrupted]:
    """Clears a thread: queued runs superseded, the open one stopped."""
    return (yield from on_thread(thread, lane.interrupt(thread)))


def decide(
    settings: Settings,
    /,
    run_id: str,
    target: str,
    action: str,
    *,
    decision_id: str | None = None,
    **more: Any,
) -> Plan[approvals.Decided]:
    """Answers one ticket of a run, named by its id or its call's."""
    given = {"id": decision_id or new_id(), "target": target, "action": action, **more}
    return (yield from decide_many(settings, run_id, [parse(Decision, given)]))


def decide_many(settings: Settings, /, run_id: str, decisions: Sequence[Decision]) -> Plan[approvals.Decided]:
    """Answers several tickets of a run, all or none."""
    given = [_expect(Decision, each) for each in decisions]
    thread_id = yield from one(records.thread_of(run_id))
    return (yield from one(approvals.decide(thread_id, run_id, given, settings.max_body_bytes)))


def tool_output(settings: Settings, /, run_id: str, call_id: str, *, step: int | None = None) -> Plan[str]:
    """The whole result of a call, of which the log has only the beginning."""
    thread_id = yield from one(records.thread_of(run_id))
    found = yield from one(records.get_output(thread_id, run_id, call_id, step))
    if found is None:
        raise NotFound(f"run {run_id} keeps no output of call {call_id}; results that were not cut are in the log")
    return found


def list_grants(settings: Settings, /, thread: str) -> Plan[list[grants.Grant]]:
    """What was allowed for good on a thread."""
    return (yield from one(grants.grants(thread)))


def revoke(settings: Settings, /, thread: str, action_key: str) -> Plan[bool]:
    """Takes back what was allowed for good; a run under way asks again at its next call."""
    return (yield from one(grants.revoke(thread, action_key)))


def send(
    settings: Settings,
    /,
    thread: str,
    text: str | Message,
    *,
    mail_id: str | None = None,
    sender: str = "",
    agent: str | None = None,
    queue: str = "default",
) -> Plan[inbox.Receipt]:
    """Puts mail into a thread's mailbox: folded into its run, or starting one."""
    words = message("user", text) if isinstance(text, str) else text
    fields = {"id": mail_id or new_id(), "thread_id": thread, "message": words, "sender": sender}
    letter = parse(Letter, {**fields, "agent": agent, "queue": queue})
    return (yield from on_thread(thread, inbox.send(letter, settings)))


def steer(settings: Settings, /, thread: str, text: Input, *, run_id: str | None = None) -> Plan[lane.Submitted]:
    """Gives the thread's running run something to consider at its next step; starts a run if there is none."""
    return (yield from submit(settings, None, text, thread=thread, on_busy="steer", run_id=run_id))


def get_run(settings: Settings, /, run_id: str) -> Plan[RunRecord]:
    """A run's record."""
    thread_id = yield from one(records.thread_of(run_id))
    return (yield from one(records.get_run(thread_id, run_id)))


def get_thread(settings: Settings, /, thread: str) -> Plan[ThreadRecord]:
    """A thread's record."""
    return (yield from one(records.get_thread(thread)))


def calls(settings: Settings, /, run_id: str) -> Plan[list[Any]]:
    """The calls of a run whose results are not in the log yet, with their tickets."""
    thread_id = yield from one(records.thread_of(run_id))
    return (yield from one(records.get_calls(thread_id, run_id)))


def messages(settings: Settings, /, thread: str, *, raw: bool = False) -> Plan[list[log.Entry]]:
    """The thread's messages as a model would see them; `raw` shows the log as it was written."""
    entries: list[log.Entry] = []
    while True:
        page = yield from one(log.read(thread, entries[-1].seq if entries else 0))
        entries += page
        if not page:
            return entries if raw else log.view(entries)


def unread(settings: Settings, /, thread: str) -> Plan[list[inbox.Mail]]:
    """Mail the thread has not read yet."""
    return (yield from one(inbox.unread(thread, settings.max_mail)))


def holder(settings: Settings, /, thread: str) -> Plan[lock.Holder | None]:
    """Who works on the thread."""
    return (yield from one(lock.holder(thread)))


def retry(settings: Settings, /, run_id: str, *, idempotency_key: str | None = None) -> Plan[lane.Submitted]:
    """Submits the request of an ended run once more, as a new run; takes it off the list of the dead."""
    record = yield from get_run(settings, run_id)
    if record.termination is None:
        raise InvalidInput(f"run {run_id} is {record.status}; only a run that has ended can be retried")
    body = record.request
    again: Options = {
        "thread": record.thread_id,
        "idempotency_key": idempotency_key,
        "queue": record.queue,
        "priority": record.priority,
        "tenant": record.tenant,
        "webhook": record.webhook,
        "metadata": {**body.get("metadata", {}), "retry_of": run_id},
        "overrides": body.get("overrides"),
        "frontend_tools": body.get("frontend_tools"),
    }
    words = tuple(parse(Message, each) for each in body.get("messages", ()))
    done = yield from submit(settings, record.agent, words, **again)
    yield from one(Op(("ZREM", keys.DEAD, run_id), int))
    return done


def retry_dead(settings: Settings, /, run_id: str) -> Plan[lane.Submitted]:
    """Retries a run that was given up, once however often it is asked: the new run's idempotency key is `retry:RUN`."""
    if not (yield from one(Op(("ZSCORE", keys.DEAD, run_id), bool))):
        raise NotFound(f"run {run_id!r} is not on the list of the dead; see: postroom dead list")
    return (yield from retry(settings, run_id, idempotency_key=f"retry:{run_id}"))


def drop_dead(settings: Settings, /, run_id: str) -> Plan[bool]:
    """Takes a run off the list of the dead; its record stays until it expires."""
    return bool((yield from one(Op(("ZREM", keys.DEAD, run_id), int))))


def redeliver(settings: Settings, /, delivery_id: str) -> Plan[bool]:
    """Owes a delivery that was given up once more, with all its tries; False when there is no such delivery."""
    return (yield from one(deliveries.owe_again(delivery_id)))


def drop_delivery(settings: Settings, /, delivery_id: str) -> Plan[bool]:
    """Forgets a delivery that was given up."""
    forgotten, _ = yield from all_of(deliveries.forget(delivery_id))
    return bool(forgotten)


def delete_thread(settings: Settings, /, thread: str) -> Plan[int]:
    """Deletes an idle thread with all it holds."""
    return (yield from on_thread(thread, lane.delete(thread)))


def list_lost(settings: Settings, /, thread: str) -> Plan[list[errands.Lost]]:
    """Errands of a thread that were given up: mail nobody could take, and why."""
    return (yield from one(errands.undelivered(thread)))


def replay_lost(settings: Settings, /, thread: str, *places: str) -> Plan[int]:
    """Tries errands that were given up once more; without places, all of them."""
    return (yield from one(errands.replay(thread, places)))


def clear_lost(settings: Settings, /, thread: str, *places: str) -> Plan[int]:
    """Forgets errands that were given up; without places, all of them."""
    return (yield from one(errands.clear(thread, places)))
