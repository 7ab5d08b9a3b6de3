"""`@tool`: a function becomes a tool, with the schema its signature gives."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict, Unpack, overload

from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.keys import check_token
from postroom.worker.core.calls import Outcome
from postroom.worker.tools.base import Approval, Plain, Retry, Tool, ToolContext
from postroom.worker.tools.results import outcome_of
from postroom.worker.tools.schema import Arguments, Signature
from postroom.worker.tools.threads import in_thread

Function = Callable[..., Any]
Asked = Approval | bool | None
KINDS = frozenset({"execute", "read", "edit", "search", "other"})
_log = logging.getLogger(__name__)


class Options(TypedDict, total=False):
    """What may be said about a tool; `retry` may be a number of times, `kind` one of KINDS."""

    name: str
    description: str
    timeout: float | None
    parallel_safe: bool
    idempotent: bool
    output_limit: int | None
    retry: Retry | int
    needs_approval: Asked | Callable[[Plain], Asked]
    kind: str


@overload
def tool(function: Function, /) -> Tool: ...


@overload
def tool(**options: Unpack[Options]) -> Callable[[Function], Tool]: ...


def tool(function: Function | None = None, /, **options: Unpack[Options]) -> Tool | Callable[[Function], Tool]:
    """A tool made of a function; every mistake in it is found and listed here, not when a model calls it."""
    if function is None:
        return lambda each: define(each, options)
    return define(function, options)


def define(function: Function, options: Options) -> Tool:
    """The tool of a function, or InvalidInput."""
    if not inspect.isroutine(function):
        raise InvalidInput(f"@tool needs a function, not a {type(function).__name__}")
    name = options.get("name", function.__name__)
    signature = Signature(function)
    problems = [*_named_badly(name), *signature.problems, *_generates(function), *_chosen_badly(options)]
    if problems:
        raise InvalidInput(f"tool {name!r} cannot be defined: {'; '.join(problems)}")
    retry = options.get("retry", Retry())
    return Tool(
        name=name,
        description=options.get("description", (inspect.getdoc(function) or "").partition("\n")[0]),
        parameters=signature.schema,
        run=_runner(function, signature),
        check=signature.check,
        timeout=options.get("timeout"),
        parallel_safe=options.get("parallel_safe", True),
        idempotent=options.get("idempotent", False),
        output_limit=options.get("output_limit"),
        retry=Retry(retry) if isinstance(retry, int) else retry,
        needs_approval=_asking(name, options.get("needs_approval")),
        kind=options.get("kind", "other"),
        function=function,
    )


def _named_badly(name: str) -> list[str]:
    # Every provider takes these characters, some take no others.
    try:
        check_token(name, "its name")
    except InvalidInput as error:
        return [error.message]
    return []


def _generates(function: Function) -> list[str]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return ["it yields; return one result, and tell progress through the context"]
    return []


def _positive(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0)


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: isinstance(value, str), "a text"),
    "description": (lambda value: isinstance(value, str), "a text"),
    "timeout": (_positive, "a number of seconds above 0"),
    "parallel_safe": (lambda value: isinstance(value, bool), "True or False"),
    "idempotent": (lambda value: isinstance(value, bool), "True or False"),
    "output_limit": (lambda value: _positive(value) and not isinstance(value, float), "a number of characters above 0"),
    "retry": (
        lambda value: isinstance(value, Retry) or (type(value) is int and value >= 0),
        "a Retry or a number of times",
    ),
    "needs_approval": (
        lambda value: (
            (value is None or isinstance(value, (bool, Approval)) or callable(value))
            and not inspect.iscoroutinefunction(value)
        ),
        "True, an Approval or a plain function of the arguments",
    ),
    "kind": (lambda value: value in KINDS, f"one of {', '.join(sorted(KINDS))}"),
}


def _chosen_badly(options: Options) -> list[str]:
    return [
        f"{option} must be {_CHECKS[option][1]}" if option in _CHECKS else f"there is no option {option!r}"
        for option, value in options.items()
        if option not in _CHECKS or not _CHECKS[option][0](value)
    ]


def _asking(name: str, asked: Asked | Callable[[Plain], Asked]) -> Callable[[Plain], Approval | None] | None:
    # The key is what a person's "always" is remembered by.
    usual = Approval(f"May {name} be called?", action_key=f"tool:{name}")

    def as_approval(answer: Asked) -> Approval | None:
        return answer if isinstance(answer, Approval) else usual if answer else None

    def ask(arguments: Plain) -> Approval | None:
        try:
            return as_approval(asked(arguments) if callable(asked) else asked)
        except Exception:
            # Better one question too many than a call nobody wanted.
            _log.warning("tool %s: needs_approval failed, so somebody is asked", name, exc_info=True)
            return usual

    return ask if asked else None


def _runner(function: Function, signature: Signature) -> Callable[[Arguments, ToolContext], Any]:
    native = inspect.iscoroutinefunction(function)

    async def run(arguments: Arguments, context: ToolContext) -> Outcome:
        if native:
            value = await signature.call(arguments, context)
        else:
            value = await in_thread(partial(signature.call, arguments, _from_thread(context)))
        if inspect.isawaitable(value):
            value = await value
        return outcome_of(value, arguments.raw, context)

    return run


def _from_thread(context: ToolContext) -> ToolContext:
    loop = asyncio.get_running_loop()

    def tell(words: str) -> None:
        loop.call_soon_threadsafe(context.tell, words)

    return replace(context, tell=tell)
