"""Middleware: its order on the way in and out, and what happens when it fails."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.state import StateKey
from postroom.worker.model.reply import Reply
from postroom.worker.plugins.base import HookContext
from postroom.worker.plugins.middleware import Middleware, MiddlewareChain
from tests.worker.plugins.asking import Asked, found

Plain = dict[str, Any]
TRACE: StateKey[list[str], str] = StateKey("trace", [], lambda known, more: [*known, more])


class Marks(Middleware):
    def __init__(self, mark: str, seen: list[str]) -> None:
        self.mark = mark
        self.seen = seen

    async def on_user_message(self, message: Plain, context: HookContext) -> Plain:
        return {"text": message["text"] + self.mark}

    def on_pre_llm(self, messages: tuple[Plain, ...], context: HookContext) -> tuple[Plain, ...]:
        return (*messages, {"text": self.mark})

    def on_post_llm(self, reply: Reply, context: HookContext) -> Reply:
        return replace(reply, text=reply.text + self.mark)

    def on_run_start(self, context: HookContext) -> None:
        self.seen.append(f"start {self.mark}")

    async def on_tool_start(self, context: HookContext) -> None:
        self.seen.append(f"tool {self.mark}")

    def on_tool_end(self, context: HookContext) -> None:
        self.seen.append(f"tool end {self.mark}")

    def on_run_end(self, context: HookContext) -> None:
        self.seen.append(f"end {self.mark}")


class Silent(Middleware):
    def on_user_message(self, message: Plain, context: HookContext) -> None:
        return None

    def on_pre_llm(self, messages: tuple[Plain, ...], context: HookContext) -> None:
        return None

    async def on_post_llm(self, reply: Reply, context: HookContext) -> None:
        return None


class Broken(Silent):
    def on_user_message(self, message: Plain, context: HookContext) -> None:
        raise ValueError("broken")

    on_pre_llm = on_user_message  # type: ignore[assignment]

    async def on_post_llm(self, reply: Reply, context: HookContext) -> None:
        raise ValueError("broken")

    def on_run_start(self, context: HookContext) -> None:
        raise ValueError("broken")


class Forgiven(Broken):
    fail_open = True


def passed(known: Asked) -> tuple[Any, Any, Any]:
    """A message, a request and a reply, after all the middleware."""
    context = known.context(Phase.BEFORE_INFERENCE)
    message: Any = {"text": "hi"}
    for change in known.registrar.input_filters:
        message = found(change(message, context))
    sent: Any = ()
    for transform in known.registrar.transforms:
        sent = transform(sent, context)
    reply: Any = Reply("ok")
    for answer in known.registrar.reply_filters:
        reply = found(answer(reply, context))
    return message, sent, reply.text


def test_first_in_is_last_out() -> None:
    seen: list[str] = []
    known = Asked(MiddlewareChain(Marks("a", seen), Marks("b", seen)))
    assert passed(known) == ({"text": "hiab"}, ({"text": "a"}, {"text": "b"}), "okba")
    for phase in Phase:
        known.hooks(phase)
    assert seen == ["start a", "start b", "tool a", "tool b", "tool end b", "tool end a", "end b", "end a"]


def test_none_leaves_things_as_they_are() -> None:
    assert passed(Asked(MiddlewareChain(Silent()))) == ({"text": "hi"}, (), "ok")


def test_only_what_was_overridden_is_asked() -> None:
    registrar = Asked(MiddlewareChain(Silent(), Middleware())).registrar
    found_hooks = (registrar.input_filters, registrar.transforms, registrar.reply_filters, registrar.hooks)
    assert [len(each) for each in found_hooks] == [1, 1, 1, 0]


def test_a_failure_ends_the_run_or_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    closed = Asked(MiddlewareChain(Broken()))
    context = closed.context(Phase.BEFORE_INFERENCE)
    with pytest.raises(ValueError, match="broken"):
        found(closed.registrar.input_filters[0]({}, context))
    with pytest.raises(ValueError, match="broken"):
        closed.registrar.transforms[0]((), context)
    with pytest.raises(ValueError, match="broken"):
        found(closed.registrar.reply_filters[0](Reply(), context))
    with pytest.raises(ValueError, match="broken"):
        closed.hooks(Phase.RUN_START)
    with caplog.at_level(logging.WARNING):
        opened = Asked(MiddlewareChain(Forgiven()))
        assert passed(opened) == ({"text": "hi"}, (), "ok")
        assert not opened.hooks(Phase.RUN_START)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    assert "Forgiven failed" in caplog.text


def test_hooks_may_change_the_state() -> None:
    class Notes(Middleware):
        def on_run_start(self, context: HookContext) -> Command:
            return Command((TRACE.update(context.run_id),))

    known = Asked(MiddlewareChain(Notes()))
    known.state = known.state.register([TRACE])
    known.hooks(Phase.RUN_START)
    assert known.state[TRACE] == ["r"]


def test_what_only_rearranges_is_not_async() -> None:
    class Waits(Middleware):
        async def on_pre_llm(self, messages: Any, context: HookContext) -> Any: ...  # type: ignore[override]

    with pytest.raises(InvalidInput, match="on_pre_llm of Waits is async"):
        MiddlewareChain(Waits())
