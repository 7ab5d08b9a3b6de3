"""Background tasks as their owner knows them: names, who may be addressed, what has been heard of them.

A task is a run on a thread of its own; its id names both. What its owner knows lies in the owner's thread state and
changes with the owner's own commits, so that a task that was not committed was never started.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

from postroom.worker.core.state import Merge, Scope, StateKey

Plain = dict[str, Any]
Tasks = dict[str, Plain]

RESERVED = frozenset({"parent", "self", "all", "broadcast"})
RUNNING = "running"
# How many tasks that have ended are remembered.
REMEMBERED = 100
ORPHANED = "task orphaned: its run is gone"


def _updated(known: dict[str, Plain], news: dict[str, Plain]) -> dict[str, Plain]:
    """Tasks by id, each with what has changed; of those that ended only the latest are kept."""
    merged = {**known, **{name: {**known.get(name, {}), **each} for name, each in news.items()}}
    over = [name for name, each in merged.items() if each["status"] != RUNNING]
    for name in over[: max(len(over) - REMEMBERED, 0)]:
        del merged[name]
    return merged


TASKS: StateKey[dict[str, Plain], dict[str, Plain]] = StateKey(
    "background_task_state", {}, _updated, Scope.THREAD, Merge.COMMUTATIVE
)


def derived(prefix: str, key: str) -> str:
    """An id that follows from the call that asked for it, so that a call carried out twice asks for the same."""
    return f"{prefix}{hashlib.sha256(key.encode()).hexdigest()[:24]}"


def pending(tasks: Tasks, thread_id: str) -> list[Plain]:
    """The tasks of a thread that have not ended; a fork remembers those of another, and hears nothing of them."""
    return [task for task in tasks.values() if task["status"] == RUNNING and task["owner_thread_id"] == thread_id]


def name_refused(tasks: Tasks, thread_id: str, name: str | None) -> str | None:
    """Why a task may not be called that."""
    if name in RESERVED:
        return "reserved_name"
    if name is not None and any(task.get("name") == name for task in pending(tasks, thread_id)):
        return "duplicate_name"
    return None


def found(tasks: Tasks, name: str) -> Plain | None:
    """The task of that id, else the one of that name that still runs, else the last that was called so."""
    if name in tasks:
        return tasks[name]
    called = [task for task in tasks.values() if task.get("name") == name]
    running = [task for task in called if task["status"] == RUNNING]
    last = running or called
    return last[-1] if last else None


def addressed(tasks: Tasks, thread_id: str, name: str) -> Plain | str:
    """The task that a message is for, or the code of what is in its way."""
    task = found(tasks, name)
    if task is None:
        return "recipient_not_found"
    if task["owner_thread_id"] != thread_id:
        return "permission_denied"
    if task["status"] != RUNNING or task["task_type"] == "function":
        return "recipient_unavailable"
    return task


def heard(tasks: Tasks, messages: Iterable[Plain], now: int) -> dict[str, Plain]:
    """What messages from tasks change about them; progress and events of a task's own change nothing."""
    news: dict[str, Plain] = {}
    for message in messages:
        event = message.get("metadata", {}).get("task_event")
        if event and event["kind"] in _ENDS and event["task_id"] in tasks:
            news[event["task_id"]] = {"status": event["kind"], "completed_at_ms": now, **_about(event)}
    return news


_ENDS = frozenset({"completed", "failed", "cancelled"})


def _about(event: Plain) -> Plain:
    return {"error": event["error"]} if event.get("error") else {}
