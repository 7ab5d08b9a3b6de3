"""Middleware: a few hooks around what the user says, what the model is sent and what it answers."""

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.command import Command, Phase
from postroom.worker.model.reply import Reply
from postroom.worker.plugins.base import HookContext, Plugin, Registrar

Plain = dict[str, Any]
Answer = Command | Awaitable[Command | None] | None
_log = logging.getLogger(__name__)


class Middleware:
    """Base of all; override what is needed. What returns None leaves things as they are.

    Each sees what those before it made. Hooks that come after something (`on_post_llm`, `on_tool_end`, `on_run_end`)
    are asked in reverse order, as one leaves nested rooms. An error ends the run, unless `fail_open` says that the run
    goes on as if the hook had not been there.
    """

    fail_open: ClassVar[bool] = False

    def on_user_message(self, message: Plain, context: HookContext) -> Plain | Awaitable[Plain | None] | None:
        """Once for each message of a user, before it is stored."""
        return None

    def on_pre_llm(self, messages: tuple[Plain, ...], context: HookContext) -> tuple[Plain, ...] | None:
        """What is sent to the model, for this request only; it is cut to the model's size afterwards."""
        return None

    def on_post_llm(self, reply: Reply, context: HookContext) -> Reply | Awaitable[Reply | None] | None:
        """What the model said, before it is stored and acted upon."""
        return None

    def on_run_start(self, context: HookContext) -> Answer:
        """When a run begins."""
        return None

    def on_tool_start(self, context: HookContext) -> Answer:
        """Right before a call is carried out."""
        return None

    def on_tool_end(self, context: HookContext) -> Answer:
        """When the outcome of a call is known, also of one that failed."""
        return None

    def on_run_end(self, context: HookContext) -> Answer:
        """When a run ends."""
        return None


_PHASES = {
    "on_run_start": Phase.RUN_START,
    "on_tool_start": Phase.BEFORE_TOOL_EXECUTE,
    "on_tool_end": Phase.AFTER_TOOL_EXECUTE,
    "on_run_end": Phase.RUN_END,
}
_AFTERWARDS = frozenset({"on_post_llm", "on_tool_end", "on_run_end"})


class MiddlewareChain(Plugin):
    """Middleware in order, the outermost first."""

    id = "middleware"

    def __init__(self, *chain: Middleware) -> None:
        wrong = [type(each).__name__ for each in chain if inspect.iscoroutinefunction(each.on_pre_llm)]
        if wrong:
            raise InvalidInput(f"on_pre_llm of {', '.join(wrong)} is async; it only rearranges, so make it a plain def")
        self._chain = chain

    def register(self, registrar: Registrar) -> None:
        """Whatever was overridden."""
        for each in self._asked("on_user_message"):
            registrar.filter_input(_kept(each, each.on_user_message))
        for each in self._asked("on_pre_llm"):
            registrar.transform(_kept(each, each.on_pre_llm))
        for each in self._asked("on_post_llm"):
            registrar.filter_reply(_kept(each, each.on_post_llm))
        for name, phase in _PHASES.items():
            for each in self._asked(name):
                registrar.hook(phase, _guarded(each, getattr(each, name), None))

    def _asked(self, name: str) -> list[Middleware]:
        having = [each for each in self._chain if getattr(type(each), name) is not getattr(Middleware, name)]
        return having[::-1] if name in _AFTERWARDS else having


def _kept(owner: Middleware, change: Callable[[Any, HookContext], Any]) -> Callable[[Any, HookContext], Any]:
    """The change, or the same thing again when it returns None or may fail and does."""

    def changed(thing: Any, context: HookContext) -> Any:
        return _guarded(owner, lambda given: change(thing, given), thing)(context)

    return changed


def _guarded(owner: Middleware, hook: Callable[[HookContext], Any], otherwise: Any) -> Callable[[HookContext], Any]:
    def asked(context: HookContext) -> Any:
        try:
            found = hook(context)
        except Exception:
            if not owner.fail_open:
                raise
            return _excused(owner, otherwise)
        return _later(owner, found, otherwise) if inspect.isawaitable(found) else _or(found, otherwise)

    return asked


async def _later(owner: Middleware, found: Awaitable[Any], otherwise: Any) -> Any:
    try:
        return _or(await found, otherwise)
    except Exception:
        if not owner.fail_open:
            raise
        return _excused(owner, otherwise)


def _or(found: Any, otherwise: Any) -> Any:
    return otherwise if found is None else found


def _excused(owner: Middleware, otherwise: Any) -> Any:
    _log.warning("middleware %s failed and the run goes on without it", type(owner).__name__, exc_info=True)
    return otherwise
