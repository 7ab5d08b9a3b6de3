"""Messages between agents: `send_message` and what became of one, and those that could not be delivered.

A message is an errand of the step that sends it: a step that is not committed sends nothing, one that is repeated sends
once. The receipt of a failure is a result like any other, for the model to read.
"""

from typing import Any

from postroom.dispatcher.reports import task_message
from postroom.mailbox.contracts import Letter, message
from postroom.mailbox.errands import Errand, Kind
from postroom.mailbox.errors import NotFound, PostroomError
from postroom.worker.core.calls import Outcome
from postroom.worker.core.command import Command
from postroom.worker.core.tasks import TASKS, addressed, derived
from postroom.worker.tools.base import Plain, Tool, ToolContext
from postroom.worker.tools.errors import InvalidArguments


def _relation(relation: str, /, **fields: str) -> Plain:
    properties: Plain = {"relation": {"const": relation}}
    properties |= {field: {"type": "string", "description": words} for field, words in fields.items()}
    needed = ["relation", *(field for field in fields if field != "agent_id")]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


PARAMETERS: Plain = {
    "type": "object",
    "properties": {
        "to": {
            "anyOf": [
                _relation("parent"),
                _relation("child", name="A background task of yours, by its name or id."),
                _relation("agent", thread_id="The thread it works on.", agent_id="Who serves the thread if it is new."),
            ]
        },
        "message": {"type": "string"},
    },
    "required": ["to", "message"],
    "additionalProperties": False,
}
_NEEDED: dict[str, tuple[str, ...]] = {"parent": (), "child": ("name",), "agent": ("thread_id",)}


def _check(arguments: Plain) -> Plain:
    to, words = arguments.get("to"), arguments.get("message")
    if not isinstance(to, dict):
        raise InvalidArguments("to is missing; it says who the message is for")
    relation = to.get("relation")
    if relation not in _NEEDED:
        known = ", ".join(sorted(_NEEDED))
        raise InvalidArguments(f"to.relation must be one of {known}" if relation else "to.relation is missing")
    for field in _NEEDED[relation]:
        if not isinstance(to.get(field), str) or not to[field]:
            raise InvalidArguments(f"to.{field} is missing; a message to {relation} needs it")
    if to.get("agent_id") is not None and not isinstance(to["agent_id"], str):
        raise InvalidArguments("to.agent_id must be a text")
    if not isinstance(words, str):
        raise InvalidArguments("message is missing")
    return {"to": to, "message": words}


async def _send(arguments: Plain, context: ToolContext) -> Outcome:
    try:
        letter = _ADDRESS[arguments["to"]["relation"]](arguments["to"], arguments["message"], context)
    except PostroomError as error:
        letter = f"transport_failed: {error.message}"
    if isinstance(letter, str):
        return Outcome("success", {"message_id": "", "status": "failed", "error": letter})
    errand = Errand(Kind.MAIL, letter.id, letter.thread_id, letter.run_id or "", letter.as_dict())
    return Outcome("success", {"message_id": letter.id, "status": "queued"}, command=Command(errands=(errand,)))


def _letter(context: ToolContext, thread_id: str, words: str, **more: Any) -> Letter:
    message_id = derived("msg-", context.idempotency_key)
    about = {"sender_agent_id": context.agent, "sender_thread_id": context.thread_id}
    usual: Plain = {"message": message("user", words, id=message_id, metadata=about)}
    queue = context.request.get("queue") or "default"
    return Letter(id=message_id, thread_id=thread_id, sender=context.agent, queue=queue, **(usual | more))


def _to_parent(to: Plain, words: str, context: ToolContext) -> Letter | str:
    parent = context.request.get("parent")
    return _letter(context, parent["thread_id"], words) if parent else "recipient_unavailable"


def _to_child(to: Plain, words: str, context: ToolContext) -> Letter | str:
    task = addressed(context.state[TASKS], context.thread_id, to["name"])
    if isinstance(task, str):
        return task
    task_id = task["task_id"]
    payload = {"event_type": "agent_message", "payload": {"from": context.agent, "content": words}}
    event = task_message(task_id, "custom", payload)
    return _letter(context, task_id, words, message=event, kind="task", run_id=task_id)


def _to_agent(to: Plain, words: str, context: ToolContext) -> Letter:
    return _letter(context, to["thread_id"], words, agent=to.get("agent_id"))


_ADDRESS = {"parent": _to_parent, "child": _to_child, "agent": _to_agent}

send_message = Tool(
    "send_message",
    "Sends a message to your parent, to a background task of yours, or to an agent on another thread.",
    PARAMETERS,
    _send,
    _check,
    idempotent=True,
)


async def _receipt(arguments: Plain, context: ToolContext) -> Outcome:
    try:
        found = await context.dispatcher.receipt(arguments["message_id"])
    except NotFound:
        return Outcome("success", {"message_id": arguments["message_id"], "status": "unknown"})
    said = {"message_id": found.mail_id, "status": found.status, "thread_id": found.thread_id}
    return Outcome("success", {**said, "error": found.error} if found.error else said)


message_receipt = Tool(
    "message_receipt",
    "Tells what became of a message you sent: queued, accepted, applied (read by its recipient) or failed.",
    {
        "type": "object",
        "properties": {"message_id": {"type": "string"}},
        "required": ["message_id"],
        "additionalProperties": False,
    },
    _receipt,
    idempotent=True,
    kind="read",
)

_ACTIONS = ("list", "replay", "clear")


def _checked_action(arguments: Plain) -> str:
    action = arguments.get("action")
    if action not in _ACTIONS:
        raise InvalidArguments(f"action must be one of {', '.join(_ACTIONS)}")
    return str(action)


async def _recover(action: str, context: ToolContext) -> Outcome:
    client = context.dispatcher
    lost = [each for each in await client.list_lost(context.thread_id) if each.errand.kind is Kind.MAIL]
    if action == "list":
        shown = [
            {"message_id": each.errand.id, "to": each.errand.to, "error": f"transport_failed: {each.error}"}
            for each in lost
        ]
        return Outcome("success", {"messages": shown})
    do = client.replay_lost if action == "replay" else client.clear_lost
    places = [each.place for each in lost]
    return Outcome("success", {"count": await do(context.thread_id, *places) if places else 0})


recover_failed_messages = Tool(
    "recover_failed_messages",
    "Lists messages of this thread that could not be delivered, tries them again, or forgets them.",
    {
        "type": "object",
        "properties": {"action": {"enum": list(_ACTIONS)}},
        "required": ["action"],
        "additionalProperties": False,
    },
    _recover,
    _checked_action,
    idempotent=True,
)
