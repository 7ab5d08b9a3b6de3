"""Background tasks: `spawn_task`, `cancel_task`, `list_tasks`.

A task is a run of its own: an agent with a prompt, or a function with arguments. It is started with the commit of the
step that asked for it and outlives worker and run; what it has to say comes back as mail.
"""

from collections.abc import Collection, Mapping
from typing import Any

from postroom.mailbox.errands import Errand, Kind
from postroom.mailbox.errors import NotFound
from postroom.mailbox.lifecycle import RunStatus
from postroom.worker.core.calls import Outcome, failure
from postroom.worker.core.command import Command
from postroom.worker.core.tasks import RUNNING, TASKS, derived, found, name_refused
from postroom.worker.tools.base import Plain, Tool, ToolContext
from postroom.worker.tools.children import Nursery
from postroom.worker.tools.errors import InvalidArguments
from postroom.worker.tools.execute import check as check_arguments

# The agent that stands for a function, as a run's record has it.
FUNCTION = "task:"
_TEXT: Plain = {"type": "string"}
_REFUSED = {
    "reserved_name": "the name {name!r} has a meaning of its own; choose another",
    "duplicate_name": "a task called {name!r} is at work already; choose another name or wait for it",
}


def spawn_task(agents: Collection[str], functions: Mapping[str, Tool], nursery: Nursery) -> Tool:
    """The tool that starts tasks, for an agent that may use these."""

    def check(arguments: Plain) -> Plain:
        agent, function = arguments.get("agent"), arguments.get("function")
        if (agent is None) == (function is None):
            raise InvalidArguments("give an agent with a prompt, or a function with arguments, and not both")
        if agent is not None and agent not in agents:
            raise InvalidArguments(f"there is no agent {agent!r}; there is {', '.join(agents) or 'none'}")
        if function is not None and function not in functions:
            raise InvalidArguments(f"there is no function {function!r}; there is {', '.join(functions) or 'none'}")
        if agent is not None and not (isinstance(arguments.get("prompt"), str) and arguments["prompt"].strip()):
            raise InvalidArguments("prompt is missing; it says what the agent is to do")
        if function is not None:
            check_arguments(functions[function], arguments.get("arguments") or {})
        for field in ("name", "description"):
            if arguments.get(field) is not None and not isinstance(arguments[field], str):
                raise InvalidArguments(f"{field} must be a text")
        return arguments

    async def run(arguments: Plain, context: ToolContext) -> Outcome:
        name = arguments.get("name") or None
        if code := name_refused(context.state[TASKS], context.thread_id, name):
            return failure(code, _REFUSED[code].format(name=name))
        if refused := nursery.refusal(context):
            return refused
        task_id = derived("bg_", context.idempotency_key)
        agent, function = arguments.get("agent"), arguments.get("function")
        if agent:
            errand = nursery.birth(context, task_id, agent, arguments["prompt"], "mail")
        else:
            given = arguments.get("arguments") or {}
            errand = nursery.birth(context, task_id, f"{FUNCTION}{function}", function or "", "mail", arguments=given)
        task = {
            "task_id": task_id,
            "owner_thread_id": context.thread_id,
            "task_type": "agent" if agent else "function",
            "name": name,
            "description": arguments.get("description") or agent or function,
            "status": RUNNING,
            "created_at_ms": context.now,
            "parent_context": {"run_id": context.run_id, "call_id": context.call_id, "agent_id": context.agent},
        }
        command = Command((TASKS.update({task_id: task}),), errands=(errand,))
        return Outcome("success", {"task_id": task_id, "name": name, "status": RUNNING}, command=command)

    properties: Plain = {
        "agent": {"enum": list(agents)},
        "prompt": {**_TEXT, "description": "What the agent is to do, with all it must know."},
        "function": {"enum": list(functions)},
        "arguments": {"type": "object", "description": "What the function is called with."},
        "name": {**_TEXT, "description": "What you will call the task."},
        "description": _TEXT,
    }
    if not agents:
        del properties["agent"], properties["prompt"]
    if not functions:
        del properties["function"], properties["arguments"]
    return Tool(
        "spawn_task",
        "Starts a task in the background and returns at once; you are told when it ends.",
        {"type": "object", "properties": properties, "additionalProperties": False},
        run,
        check,
        # One after the other, so that two of one step cannot get the same name.
        parallel_safe=False,
        idempotent=True,
    )


def _check_target(arguments: Plain) -> Plain:
    target = arguments.get("target")
    if not isinstance(target, dict) or target.get("relation") not in ("self", "child"):
        raise InvalidArguments("target.relation must be self or child")
    if target["relation"] == "child" and not (isinstance(target.get("name"), str) and target["name"]):
        raise InvalidArguments("target.name is missing; it says which task")
    return target


async def _cancel(target: Plain, context: ToolContext) -> Outcome:
    if target["relation"] == "self":
        return await _cancel_self(context)
    task = found(context.state[TASKS], target["name"])
    if task is None or task["status"] != RUNNING or task["owner_thread_id"] != context.thread_id:
        return _receipt("failed", "", 0, error="task_not_found")
    task_id = task["task_id"]
    errand = Errand(Kind.CANCEL, task_id, task_id, task_id, code="parent_cancelled")
    news = {task_id: {"status": "cancelled", "completed_at_ms": context.now}}
    return _receipt(
        "accepted",
        task_id,
        1 + await _open_below(task_id, context),
        command=Command((TASKS.update(news),), errands=(errand,)),
    )


async def _cancel_self(context: ToolContext) -> Outcome:
    run = context.run_id
    errand = Errand(Kind.CANCEL, run, context.thread_id, run, code="cancelled")
    return _receipt("accepted", run, 1 + await _open_below(run, context), command=Command(errands=(errand,)))


async def _open_below(run: str, context: ToolContext) -> int:
    try:
        below = await context.dispatcher.descendants(run)
    except NotFound:
        return 0
    return sum(each.status is not RunStatus.DONE for each in below)


def _receipt(status: str, root: str, count: int, command: Command | None = None, **more: Any) -> Outcome:
    data = {"status": status, "root_task_id": root, "cancelled_count": count, **more}
    return Outcome("success", data, command=command or Command())


cancel_task = Tool(
    "cancel_task",
    "Cancels a background task with all that it started, or yourself.",
    {
        "type": "object",
        "properties": {
            "target": {
                "anyOf": [
                    {"type": "object", "properties": {"relation": {"const": "self"}}, "required": ["relation"]},
                    {
                        "type": "object",
                        "properties": {"relation": {"const": "child"}, "name": _TEXT},
                        "required": ["relation", "name"],
                    },
                ]
            }
        },
        "required": ["target"],
        "additionalProperties": False,
    },
    _cancel,
    _check_target,
    parallel_safe=False,
    idempotent=True,
)


async def _list(_: Plain, context: ToolContext) -> Outcome:
    shown = ("task_id", "name", "task_type", "description", "status", "error")
    tasks = context.state[TASKS].values()
    return Outcome("success", {"tasks": [{name: task[name] for name in shown if task.get(name)} for task in tasks]})


list_tasks = Tool(
    "list_tasks",
    "Lists your background tasks and how they stand.",
    {"type": "object", "properties": {}, "additionalProperties": False},
    _list,
    idempotent=True,
    kind="read",
)
