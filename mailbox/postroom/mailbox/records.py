"""Reading runs, threads and calls: Redis hashes back into contracts."""

from collections.abc import Callable
from typing import Any

from postroom.mailbox import codec, keys
from postroom.mailbox.contracts import CallRecord, RunRecord, ThreadRecord, parse
from postroom.mailbox.errors import RunNotFound, ThreadNotFound
from postroom.mailbox.ops import Fields, Op, hash_fields

# Fields stored as a body; everything else is plain text.
_BODIES = frozenset({"request", "parent", "usage", "output"})
_THREAD_BODIES = frozenset({"usage"})


def run_record(thread_id: str, run_id: str, fields: Fields) -> RunRecord:
    """A run from its hash."""
    data = _plain(fields, _BODIES)
    if "termination" in data:
        told = {"kind": data["termination"], "code": data.get("code"), "message": data.get("message")}
        data["termination"] = {name: value for name, value in told.items() if value}
    return parse(RunRecord, {**data, "run_id": run_id, "thread_id": thread_id})


def thread_record(thread_id: str, fields: Fields) -> ThreadRecord:
    """A thread from its hash."""
    return parse(ThreadRecord, {**_plain(fields, _THREAD_BODIES), "thread_id": thread_id})


def call_records(fields: Fields) -> list[CallRecord]:
    """The calls of a journal, in the order the model asked for them."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        kind, _, call = name.partition(":")
        if kind in _CALL_FIELDS:
            target, read = _CALL_FIELDS[kind]
            found.setdefault(call, {"call_id": call})[target] = read(value)
    return sorted((parse(CallRecord, each) for each in found.values()), key=lambda call: (call.index, call.call_id))


_CALL_FIELDS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "status": ("status", bytes.decode),
    "name": ("name", bytes.decode),
    "index": ("index", int),
    "text": ("text", bytes.decode),
    "question": ("ticket", codec.decode),
    "ticket": ("ticket_status", bytes.decode),
    "decision": ("decision", codec.decode),
}


def get_run(thread_id: str, run_id: str) -> Op[RunRecord]:
    """A run, or RunNotFound."""

    def found(reply: Any) -> RunRecord:
        if not reply:
            raise RunNotFound(f"run {run_id} does not exist or has expired")
        return run_record(thread_id, run_id, hash_fields(reply))

    return Op(("HGETALL", keys.run(thread_id, run_id)), found)


def get_thread(thread_id: str) -> Op[ThreadRecord]:
    """A thread, or ThreadNotFound."""

    def found(reply: Any) -> ThreadRecord:
        if not reply:
            raise ThreadNotFound(f"thread {thread_id} does not exist or has expired")
        return thread_record(thread_id, hash_fields(reply))

    return Op(("HGETALL", keys.thread(thread_id)), found)


def get_calls(thread_id: str, run_id: str) -> Op[list[CallRecord]]:
    """The calls of a run whose results are not in the log yet."""
    return Op(("HGETALL", keys.calls(thread_id, run_id)), lambda reply: call_records(hash_fields(reply)))


def get_state(thread_id: str) -> Op[Fields]:
    """A thread's state as it is."""
    return Op(("HGETALL", keys.thread_state(thread_id)), hash_fields)


def get_journal(thread_id: str, run_id: str) -> Op[Fields]:
    """The call journal of a run as it is."""
    return Op(("HGETALL", keys.calls(thread_id, run_id)), hash_fields)


def get_output(thread_id: str, run_id: str, call_id: str, step: int | None = None) -> Op[str | None]:
    """The whole result of a call that was too long for the log; without a step, of the last call of that id."""
    key = keys.outputs(thread_id, run_id)
    if step is not None:
        return Op(("HGET", key, f"{step}/{call_id}"), lambda reply: None if reply is None else reply.decode())

    def last(reply: Any) -> str | None:
        kept = {_place(name): text for name, text in hash_fields(reply).items()}
        steps = [made for call, made in kept if call == call_id]
        return kept[call_id, max(steps)].decode() if steps else None

    return Op(("HGETALL", key), last)


def _place(name: str) -> tuple[str, int]:
    made, _, call = name.partition("/")
    return call, int(made)


def thread_of(run_id: str) -> Op[str]:
    """The thread of a run, or RunNotFound."""

    def found(reply: bytes | None) -> str:
        if reply is None:
            raise RunNotFound(f"run {run_id} does not exist or has expired")
        return reply.decode()

    return Op(("GET", keys.run_index(run_id)), found)


def _plain(fields: Fields, bodies: frozenset[str]) -> dict[str, Any]:
    plain = {name: codec.decode(value) if name in bodies else value.decode() for name, value in fields.items()}
    return {name: value for name, value in plain.items() if value != ""}
