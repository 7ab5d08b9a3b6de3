"""Known weaknesses of agent runtimes, each with a test that fails where it exists; numbers are those of the list.

Proven elsewhere: W-08, W-09, W-21 and W-34 are a model client's own and are proven in `tests/worker/model`; the retry
of a broken stream is shown here as the loop sees it. W-33 and W-35 are shown for the loop.
Left out, because the part is not there: W-27 (skills), W-36 (sub-agents).
"""

import asyncio
import logging
from typing import Any

import pytest

from postroom.dispatcher import AsyncDispatcher
from postroom.mailbox.contracts import Base64Source, Image, Message
from postroom.mailbox.errors import BodyTooLarge, EventsTrimmed, InvalidInput, RunNotFound
from postroom.mailbox.messages import Role
from postroom.worker.app import Agent, App, Behaviour
from postroom.worker.core.actions import exclude_tool
from postroom.worker.core.calls import Outcome, SetResult
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.context import ContextPolicy
from postroom.worker.model.base import Limits
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plugins.base import HookContext, Plugin, Registrar
from postroom.worker.plugins.policy import Deny, ToolPolicy
from postroom.worker.tools import Finish, ToolContext, tool
from tests.worker.loop.clerk import Clerk, calls, done, fail, look, pay
from tests.worker.loop.office import Plain, text, valid


class Hooked(Plugin):
    """A plugin made of a few hooks."""

    id = "hooked"

    def __init__(self, **hooks: Any) -> None:
        self.hooks = hooks

    def register(self, registrar: Registrar) -> None:
        for name, hook in self.hooks.items():
            registrar.gate(hook) if name == "tool_gate" else registrar.hook(Phase(name), hook)


def test_w01_w02_what_was_done_is_there_for_another_process(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), "Done."]) as office:
        run = office.submit()
        assert office.serve(run, "before_model", nth=2)
        with Clerk(server_url, [{}, "Done."]) as elsewhere:
            elsewhere.thread = office.thread
            elsewhere.serve(run)
            assert elsewhere.words()[-2:] == [("tool", "seen"), ("assistant", "Done.")]
            assert len(elsewhere.model.requests) == 1
            elsewhere.ended(run)


def test_w03_a_call_that_finished_is_not_repeated(server_url: str) -> None:
    with Clerk(server_url, [calls("look", "look", "look"), "Done."], behaviour=Behaviour(parallel=1)) as office:
        run = office.submit()
        assert office.serve(run, "call_journaled", nth=2)
        office.serve(run)
        assert done == ["call-1-1", "call-1-2", "call-1-3"]
        assert sum(1 for message in office.log() if message.get("tool_calls")) == 1
        office.ended(run)


def test_w04_taking_a_run_up_again_uses_no_step_up(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), "Done."], max_rounds=3) as office:
        run = office.submit()
        for point in ("before_model", "after_model", "tool_started", "tools_done", "before_model"):
            assert office.serve(run, point)
        office.serve(run)
        assert office.record(run).step == 2
        office.ended(run)


def test_w05_a_reader_that_lags_learns_what_it_missed(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), {"say": "a b c", "chunk": 1}]) as office:
        run = office.run()
        told = list(office.dispatcher.events(run, live=False))
        assert [entry.number for entry in told] == list(range(1, len(told) + 1))
        office.dispatcher.client.xtrim(f"postroom:{{{office.thread}}}:run:{run}:events", maxlen=1, approximate=False)
        with pytest.raises(EventsTrimmed):
            list(office.dispatcher.events(run, after=1, live=False))


@pytest.mark.parametrize("broken", ["model", "hook"])
def test_w06_an_error_has_one_end_and_keeps_what_was_said(server_url: str, broken: str) -> None:
    def break_down(_: HookContext) -> None:
        raise BodyTooLarge("as if")

    plugins = [Hooked(step_start=break_down)] if broken == "hook" else []
    script = [{"say": "Well", "error": "unauthorized"}]
    with Clerk(server_url, script, plugins=plugins) as office:
        run = office.run()
        assert office.words() == [("user", "hello")]
        assert office.types(run)[:2] == ["run_start", "step_start"]
        office.ended(run, "error", "body_too_large" if broken == "hook" else "model_unauthorized")


def test_w07_every_call_is_answered_and_the_model_hears_why(server_url: str) -> None:
    with Clerk(server_url, [calls("look", "fail", "nosuch", "look"), "Done."]) as office:
        office.ended(office.run())
        valid(office.model.requests[1].messages)
        assert office.results()[1] == "ValueError: out of paper"
        assert len(office.results()) == 4


def test_w08_an_answer_that_breaks_off_is_tried_again(server_url: str) -> None:
    with Clerk(server_url, [[{"say": "Well", "error": "stream_interrupted"}, "Well done."]]) as office:
        run = office.run()
        assert office.record(run).status == "queued"
        office.skip_to_start(run)
        office.serve(run)
        assert office.words()[-1] == ("assistant", "Well done.")
        assert "stream_reset" in office.types(run)
        office.ended(run)


def test_w10_usage_and_truncation_are_acted_upon(server_url: str) -> None:
    with Clerk(server_url, lambda _: {"say": "more ", "stop": "max_tokens"}) as office:
        run = office.run()
        assert len(office.model.requests) == 3
        assert office.record(run).usage.output_tokens == 15
        assert office.words()[-1] == ("assistant", "more more more ")
        office.ended(run)


def test_w11_calls_announced_but_not_there(server_url: str) -> None:
    with Clerk(server_url, lambda _: {"say": "", "stop": "tool_use"}) as office:
        run = office.run()
        assert len(office.model.requests) == 3
        office.ended(run, "error", "empty_response")


def test_w12_w13_words_thoughts_and_calls_are_one_message(server_url: str) -> None:
    with Clerk(server_url, [{"think": "Hm.", "say": "Let me see.", **calls("look")}, "Done."]) as office:
        office.ended(office.run())
        message = office.log()[1]
        assert [block["type"] for block in message["content"]] == ["thinking", "text"]
        assert [call["name"] for call in message["tool_calls"]] == ["look"]
        assert [each["role"] for each in office.log()] == ["user", "assistant", "tool", "assistant"]


def test_w14_calls_run_side_by_side_but_no_more_than_allowed(server_url: str) -> None:
    running, most = 0, 0

    @tool
    async def meet(ctx: ToolContext) -> str:
        """Waits for another one."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        both.set() if running >= 2 else None
        await both.wait()
        running -= 1
        return ctx.call_id

    both = asyncio.Event()
    with Clerk(server_url, [calls(*["meet"] * 5), "Done."], tools=[meet], behaviour=Behaviour(parallel=2)) as office:
        office.ended(office.run())
        assert most == 2
        assert office.results() == [f"call-1-{place}" for place in range(1, 6)]


def test_w15_an_output_is_cut_by_characters_and_within_its_limit(server_url: str) -> None:
    @tool(output_limit=50)
    def speak() -> str:
        """Speaks at length."""
        return "日本語🎌" * 100

    with Clerk(server_url, [calls("speak"), "Done."], tools=[speak]) as office:
        office.ended(office.run())
        assert len(office.results()[0]) <= 50
        assert office.results()[0].startswith("日本語")
        assert office.log()[2]["metadata"]["cut"] == 400


def test_w16_a_cancel_inside_a_tool_is_its_failure_and_one_of_the_run_is_the_runs(server_url: str) -> None:
    @tool
    async def give_up() -> str:
        """Is cancelled from within."""
        raise asyncio.CancelledError

    @tool
    async def swallow(ctx: ToolContext) -> str:
        """Hides that the run was cancelled."""
        office.dispatcher.cancel(ctx.run_id)
        asyncio.get_running_loop().call_soon(office.desk.active[ctx.run_id].request_cancel, "cancelled")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "nothing happened"
        return ""

    with Clerk(server_url, [calls("give_up"), calls("swallow"), "Done."], tools=[give_up, swallow]) as office:
        run = office.run()
        assert "cancelled from within" in office.results()[0]
        office.ended(run, "cancelled", "cancelled")


def test_w17_no_result_ends_a_run_unless_the_tool_says_so(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), calls("nosuch"), calls("fail"), "Done."]) as office:
        office.ended(office.run())
        assert len(office.model.requests) == 4


def test_w18_what_plugins_add_is_within_the_budget_too(server_url: str) -> None:
    class Wordy(Plugin):
        """Makes every request longer."""

        id = "wordy"

        def register(self, registrar: Registrar) -> None:
            more = {"role": "user", "content": [{"type": "text", "text": "x" * 8000}]}
            registrar.transform(lambda messages, _: (more, *messages))

    policy = ContextPolicy(max_context_tokens=1000, max_output_tokens=200, min_recent_messages=0)
    with Clerk(server_url, ["Done."], context=policy, plugins=[Wordy()]) as office:
        office.ended(office.run())
        assert [text(message) for message in office.model.requests[0].messages] == ["hello"]


@pytest.mark.parametrize("how", ["person", "policy"])
def test_w19_a_denial_is_the_result_of_its_call_alone(server_url: str, how: str) -> None:
    policy = ToolPolicy(lambda request: Deny("no") if request.tool == "pay" and how == "policy" else None)
    with Clerk(server_url, [calls("pay", "look"), "Done."], plugins=[policy]) as office:
        run = office.run()
        if how == "person":
            office.dispatcher.decide(run, "call-1-1", "deny", reason="no")
            office.serve(run)
        assert [message["tool_call_id"] for message in office.log()[2:4]] == ["call-1-1", "call-1-2"]
        assert "no" in office.results()[0]
        assert done == ["call-1-2"]
        office.ended(run)


def test_w19_denials_are_no_failures_of_the_tool(server_url: str) -> None:
    with Clerk(server_url, lambda _: calls("pay"), max_rounds=6) as office:
        run = office.run()
        for step in range(1, 6):
            office.dispatcher.decide(run, f"call-{step}-1", "deny")
            office.serve(run)
        office.ended(run, "stopped", "max_rounds")


def test_w20_a_ticket_says_all_and_holds_no_worker(server_url: str) -> None:
    with Clerk(server_url, [calls("pay"), "Done."]) as office:
        run = office.run()
        (call,) = office.dispatcher.calls(run)
        assert call.ticket is not None
        assert (call.ticket.call_id, call.ticket.tool, call.ticket.arguments) == ("call-1-1", "pay", {})
        assert (call.ticket.action_key, call.ticket.message) == ("pay", "Pay?")
        assert office.dispatcher.holder(office.thread) is None
        office.dispatcher.decide(run, "call-1-1", "allow_once", by="ann")
        (heard,) = [event for event in office.events(run) if event["type"] == "decision_received"]
        assert (heard["by"], heard["action"]) == ("ann", "allow_once")


def test_w20_whatever_is_left_pending_can_be_decided(server_url: str) -> None:
    @tool
    def vague(ctx: ToolContext) -> Outcome:
        """Does not say what it waits for."""
        return Outcome("success", "ok") if ctx.decision else Outcome("pending")

    with Clerk(server_url, [calls("vague"), "Done."], tools=[vague]) as office:
        run = office.run()
        office.dispatcher.decide(run, "call-1-1", "answer", result=1)
        office.serve(run)
        assert office.results() == ["ok"]
        office.ended(run)


def test_w22_what_cannot_be_stored_is_said(server_url: str) -> None:
    with Clerk(server_url, ["x" * 5000], settings={"max_body_bytes": 4096}) as office:
        run = office.run()
        office.ended(run, "error", "body_too_large")
    with Clerk(server_url, []) as office, pytest.raises(RunNotFound):
        office.record("nosuch")


def test_w23_tools_have_one_order_and_one_name_each(server_url: str) -> None:
    with Clerk(server_url, ["Done."], tools=(pay, look, fail)) as office:
        office.run()
        assert [spec.name for spec in office.model.requests[0].tools] == ["fail", "look", "pay"]

    @tool(name="look")
    def other() -> str:
        """Has the name of another."""
        return ""

    with pytest.raises(InvalidInput, match="'look'"):
        App([Agent("clerk", model=ScriptedModel(), tools=[look, other])])


def test_w24_hooks_are_told_of_each_call_its_own_and_of_none_that_does_not_run(server_url: str) -> None:
    told: list[tuple[str, str, Any]] = []

    def note(context: HookContext) -> None:
        assert context.call
        status = context.outcome.status if context.outcome else ""
        told.append((context.phase.value, context.call.arguments.get("at", ""), status))  # type: ignore[union-attr]

    hooks = Hooked(before_tool_execute=note, after_tool_execute=note)
    looks: list[Plain] = [{"name": "look", "arguments": {"at": at}} for at in "ab"]
    script = [{"calls": [*looks, {"name": "fail"}, {"name": "pay"}, {"name": "look", "arguments": {"at": 1}}]}, "Done."]
    with Clerk(server_url, script, plugins=[hooks], behaviour=Behaviour(parallel=1)) as office:
        run = office.run()
        office.dispatcher.decide(run, "call-1-4", "deny")
        office.serve(run)
        office.ended(run)
    before, after = "before_tool_execute", "after_tool_execute"
    assert told == [
        (before, "a", ""),
        (after, "a", "success"),
        (before, "b", ""),
        (after, "b", "success"),
        (before, "", ""),
        (after, "", "error"),
    ]


def test_w24_a_call_that_a_gate_answers_is_completed_like_any_other(server_url: str) -> None:
    told = []
    hooks = Hooked(
        tool_gate=lambda context: SetResult(Outcome("success", "no need")),
        after_tool_execute=lambda context: told.append(context.outcome.data),
        before_tool_execute=lambda context: told.append("not this"),
    )
    with Clerk(server_url, [calls("look"), "Done."], plugins=[hooks]) as office:
        office.ended(office.run())
        assert (told, done, office.results()) == (["no need"], [], ["no need"])


def test_w25_what_was_not_offered_is_not_carried_out(server_url: str) -> None:
    hooks = Hooked(before_inference=lambda context: Command(actions=(exclude_tool("look"),)))
    with Clerk(server_url, [calls("look"), "Done."], plugins=[hooks]) as office:
        office.ended(office.run())
        assert done == []
        assert "look" not in [spec.name for spec in office.model.requests[0].tools]
        assert office.results() == ["tool 'look' not found"]


def test_w28_a_run_that_is_taken_up_does_what_one_that_is_not_would(server_url: str) -> None:
    told: list[list[str]] = []
    for die_at in ("", "after_commit"):
        with Clerk(server_url, [calls("look"), "Done."]) as office:
            run = office.submit()
            office.serve(run, die_at) if die_at else None
            office.serve(run)
            told.append([kind for kind in office.types(run) if kind not in ("run_start", "run_requeued")])
    assert told[0] == told[1]


def test_w29_the_end_says_how_and_input_may_be_an_image(server_url: str) -> None:
    picture = Image(source=Base64Source(media_type="image/png", data="aGk="))
    with Clerk(server_url, lambda _: calls("look"), max_rounds=2) as office:
        message = Message(role=Role.USER, content=(picture,))
        run = office.dispatcher.submit("clerk", message, thread=office.thread).run_id
        office.serve(run)
        last = office.events(run)[-1]
        assert (last["type"], last["termination"], last["code"]) == ("run_finish", "stopped", "max_rounds")


def test_w30_w33_runs_side_by_side_know_nothing_of_each_other(server_url: str) -> None:
    met = asyncio.Event()
    inside: list[str] = []

    @tool
    async def meet(ctx: ToolContext) -> str:
        """Waits until both threads are here."""
        inside.append(ctx.thread_id)
        if len(inside) == 2:
            office.dispatcher.cancel(first)
            met.set()
        await met.wait()
        return ctx.thread_id

    with Clerk(server_url, [calls("meet"), "Done."], tools=[meet]) as office:
        first, other = office.submit(), f"{office.thread}-b"
        second = office.submit(thread=other)

        async def both() -> None:
            await asyncio.gather(
                office._serve(first, "", 1, office.thread, None), office._serve(second, "", 1, other, None)
            )

        asyncio.run(both())
        assert office.record(first).termination.kind == "cancelled"
        assert office.record(second).termination.kind == "natural_end"
        assert text(office.log(other)[2]) == other
        for run in (first, second):
            assert office.types(run).count("run_finish") == 1


def test_w31_what_a_model_sees_is_what_the_log_says(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), "Done.", "Again."]) as office:
        office.run()
        before = office.log()
        office.run("more")
        assert list(office.model.requests[-1].messages[: len(before)]) == before


def test_w32_a_models_limits_are_heeded(server_url: str) -> None:
    model = ScriptedModel(lambda _: "Done.", limits=Limits(context_window=700, max_output_tokens=100))
    with Clerk(server_url, [], model=model) as office:
        for _ in range(3):
            office.ended(office.run("x" * 1000))
        assert len(model.requests[-1].messages) < len(office.log()) - 1


def test_w35_nothing_that_was_said_is_logged(server_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    script = [{"say": "SECRET", "calls": [{"name": "look", "arguments": {"at": "SECRET"}}]}, "SECRET"]
    with Clerk(server_url, script) as office:
        office.run("SECRET")
    assert "SECRET" not in caplog.text


def test_w37_ids_are_unique_without_a_counter(server_url: str) -> None:
    with Clerk(server_url, lambda _: "Done.") as office, Clerk(server_url, lambda _: "Done.") as other:
        assert len({each.submit(thread=None) for each in (office, other) for _ in range(5)}) == 10


def test_w38_a_partly_broken_answer_is_one_message_with_a_result_for_each_call(server_url: str) -> None:
    looks = [{"name": "look"}, {"name": "look", "arguments": '{"at": "cut o'}]
    with Clerk(server_url, [{"calls": looks, "stop": "max_tokens"}, "Done."]) as office:
        office.ended(office.run())
        assert [len(message.get("tool_calls", ())) for message in office.log()] == [0, 2, 0, 0, 0]
        assert done == ["call-1-1"]
        assert "not JSON" in office.results()[1]


def test_w39_the_intent_is_stored_before_the_effect(server_url: str) -> None:
    @tool
    async def check(ctx: ToolContext) -> list[Any]:
        """What is stored while it runs."""
        async with AsyncDispatcher(server_url) as dispatcher:
            last = (await dispatcher.messages(ctx.thread_id, raw=True))[-1].message
            (call,) = await dispatcher.calls(ctx.run_id)
            return [last["tool_calls"][0]["id"], call.status]

    with Clerk(server_url, [calls("check"), "Done."], tools=[check]) as office:
        office.ended(office.run())
        assert office.results() == ['["call-1-1","running"]']


def test_w40_one_long_message_is_an_error_and_not_a_hole(server_url: str) -> None:
    policy = ContextPolicy(max_context_tokens=500, max_output_tokens=100)
    with Clerk(server_url, ["Done."], context=policy) as office:
        run = office.run("x" * 10_000)
        assert office.model.requests == []
        assert len(office.words()[0][1]) == 10_000
        office.ended(run, "error", "context_window_too_small")


@pytest.mark.parametrize(
    ("answers", "kind"), [(["no", '{"a": "x"}', '{"a": 1}'], "natural_end"), (["no"] * 3, "error")]
)
def test_w41_the_final_answer_has_the_shape_that_was_asked_for(server_url: str, answers: list[str], kind: str) -> None:
    shape = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    with Clerk(server_url, answers, output=shape) as office:
        run = office.run()
        assert len(office.model.requests) == 3
        office.ended(run, kind, None if kind == "natural_end" else "output_invalid")
        if kind == "natural_end":
            assert office.events(run)[-1]["result"]["output"] == {"a": 1}


def test_finish_is_explicit(server_url: str) -> None:
    @tool
    def over() -> Finish:
        """Ends the run."""
        return Finish({"n": 1})

    with Clerk(server_url, [calls("over")], tools=[over]) as office:
        office.ended(office.run(), "behavior_requested")
