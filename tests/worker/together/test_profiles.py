"""Profiles: what one run remembers, another one finds, on any thread, through tools and plugins."""

import asyncio
from typing import Any

import pytest

from postroom.dispatcher import AsyncDispatcher, Dispatcher
from postroom.mailbox.errors import InvalidInput
from postroom.worker import Agent, App, ToolContext, tool
from postroom.worker.core.actions import add_context_message
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.context_messages import ContextMessage
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plugins.base import HookContext, Plugin, Registrar
from tests.worker.loop.office import text
from tests.worker.together.town import Town, calling


@tool
async def remember(fact: str, ctx: ToolContext) -> str:
    """Remembers a fact about whoever asks."""
    await ctx.dispatcher.put_profile(f"user::{ctx.tenant}", "fact", fact)
    return "noted"


class Reminding(Plugin):
    """Tells the model what is remembered of whoever asks."""

    id = "reminding"

    def register(self, registrar: Registrar) -> None:
        registrar.hook(Phase.STEP_START, self.remind)

    async def remind(self, context: HookContext) -> Command | None:
        fact = await context.dispatcher.get_profile(f"user::{context.tenant}", "fact")
        if not fact:
            return None
        return Command(actions=(add_context_message(ContextMessage(key="fact", content=f"Remember: {fact}")),))


def test_what_a_tool_remembers_a_plugin_finds_on_another_thread(server_url: str) -> None:
    model = ScriptedModel([calling("remember", fact="likes tea"), "Noted."])
    app = App([Agent("clerk", model=model, tools=[remember], plugins=[Reminding()])])
    with Town(server_url, app) as office:
        office.submit("I like tea.", tenant=office.thread)
        office.work()
        office.submit("hello", tenant=office.thread, thread=f"{office.thread}-2")
        office.work()
        shown = [text(message) for message in model.requests[-1].messages]
        assert any("Remember: likes tea" in words for words in shown)


OWNERS = ["global", "system", "user::ann", "agent::a1", "agent_type::support", "thread::t 1", "parent_thread::t::1"]


@pytest.mark.parametrize("owner", OWNERS)
def test_each_form_of_owner_has_a_memory_of_its_own(server_url: str, owner: str) -> None:
    with Dispatcher(server_url) as client:
        assert client.put_profile(owner, "k-forms", {"a": [1, None]})
        assert not client.put_profile(owner, "k-forms", owner)
        assert client.get_profile(owner, "k-forms") == owner
        assert client.list_profile(owner)["k-forms"] == owner
        assert client.forget_profile(owner, "k-forms")
        assert client.get_profile(owner, "k-forms") is None


def test_an_owner_can_be_forgotten_whole(server_url: str) -> None:
    with Dispatcher(server_url) as client:
        client.put_profile("user::gone", "a", 1)
        client.put_profile("user::gone", "b", 2)
        assert client.forget_profile("user::gone")
        assert client.list_profile("user::gone") == {}
        assert not client.forget_profile("user::gone")


@pytest.mark.parametrize("owner", ["", "ann", "user::", "pet::rex", "user::a{b}", "global::x"])
def test_other_owners_are_refused(server_url: str, owner: str) -> None:
    with Dispatcher(server_url) as client, pytest.raises(InvalidInput):
        client.put_profile(owner, "k", 1)


def test_the_last_writer_wins(server_url: str) -> None:
    async def write() -> Any:
        async with AsyncDispatcher(server_url) as client:
            await asyncio.gather(*(client.put_profile("user::many", "k", number) for number in range(20)))
            return await client.get_profile("user::many", "k")

    assert asyncio.run(write()) == 19
