"""Behaviours that users of in-process agent runtimes rely on, on the durable path; numbers are those of the list.

Sub-agents (13) come with delegation and are proven there. MCP tools, skills and stores other than Redis are no part of
the loop. What else must be on par is below, under names that begin with `test_parity`.
"""

import json
from typing import Any

import pytest

from postroom.dispatcher import AsyncDispatcher
from postroom.mailbox.contracts import Base64Source, Image, Message, Text
from postroom.mailbox.errors import InvalidInput
from postroom.mailbox.messages import Role
from postroom.worker.app import Agent, App, Behaviour
from postroom.worker.core.context import ContextPolicy
from postroom.worker.core.stop import MaxCost, MaxToolCalls, TokenBudget
from postroom.worker.model.reply import Reply
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plugins.base import HookContext
from postroom.worker.plugins.middleware import Middleware, MiddlewareChain
from postroom.worker.plugins.policy import Deny, Replace, Request, ToolPolicy
from postroom.worker.tools import Approval, Finish, ToolContext, tool
from tests.worker.loop.clerk import Clerk, calls, done, fail, look
from tests.worker.loop.office import Plain, text, valid


def test_01_a_plain_reply(server_url: str) -> None:
    with Clerk(server_url, ["Hi."], instructions="Be brief.") as office:
        run = office.run()
        assert office.words() == [("user", "hello"), ("assistant", "Hi.")]
        (request,) = office.model.requests
        assert [message["role"] for message in request.messages] == ["system", "user"]
        office.ended(run)


def test_02_a_tool_lets_the_model_go_on(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), "Done."]) as office:
        office.ended(office.run())
        assert len(office.model.requests) == 2


def test_03_an_unknown_tool_is_reported_and_the_model_goes_on(server_url: str) -> None:
    with Clerk(server_url, [calls("nosuch"), "Sorry."]) as office:
        run = office.run()
        (told,) = [event for event in office.events(run) if event["type"] == "tool_call_done"]
        assert "not found" in told["result"]["error"]
        assert len(office.model.requests) == 2
        office.ended(run)


def test_04_a_denial_is_a_result_and_the_model_goes_on(server_url: str) -> None:
    with Clerk(server_url, [calls("pay"), "Pity."]) as office:
        run = office.run()
        assert office.events(run)[-1]["tickets"][0]["message"] == "Pay?"
        office.dispatcher.decide(run, "call-1-1", "deny", reason="no money")
        office.serve(run)
        assert (office.results(), done) == (["The call was denied: no money"], [])
        assert len(office.model.requests) == 2
        office.ended(run)


def test_05_allow_once_carries_the_call_out(server_url: str) -> None:
    with Clerk(server_url, [calls("pay"), calls("pay"), "Done."]) as office:
        run = office.run()
        office.dispatcher.decide(run, "call-1-1", "allow_once")
        office.serve(run)
        assert done == ["call-1-1"]
        assert office.record(run).status == "waiting", "once is once"


def test_06_an_empty_reply_is_asked_for_again_a_few_times(server_url: str) -> None:
    with Clerk(server_url, [["", {"think": "Hm."}, "Here."]]) as office:
        run = office.run()
        assert len(office.model.requests) == 3
        assert office.words()[-1] == ("assistant", "Here.")
        assert office.record(run).usage.output_tokens == 15
        office.ended(run)


def test_06_a_model_that_stays_silent_ends_the_run(server_url: str) -> None:
    with Clerk(server_url, lambda _: "") as office:
        run = office.run()
        assert len(office.model.requests) == 3
        office.ended(run, "error", "empty_response")


def test_07_arguments_that_cannot_be_read_are_that_calls_result(server_url: str) -> None:
    script = [{"calls": [{"name": "look", "arguments": "{oops"}, {"name": "look"}]}, "Again."]
    with Clerk(server_url, script) as office:
        run = office.run()
        assert office.log()[2]["tool_call_id"] == "call-1-1"
        assert "not JSON" in office.results()[0]
        assert done == ["call-1-2"]
        office.ended(run)


def test_08_words_and_the_end_are_among_the_events(server_url: str) -> None:
    with Clerk(server_url, [{"say": "Hello there.", "chunk": 1}]) as office:
        told = office.events(office.run())
        assert "".join(event["delta"] for event in told if event["type"] == "text_delta") == "Hello there."
        assert told[-1]["type"] == "run_finish"
        assert told[-1]["result"] == {"response": "Hello there."}


def test_09_images_reach_the_model_and_the_log(server_url: str) -> None:
    picture = Image(source=Base64Source(media_type="image/png", data="aGk="), detail="high")
    with Clerk(server_url, ["A cat."]) as office:
        run = office.dispatcher.submit(
            "clerk", Message(role=Role.USER, content=(Text(text="What is it?"), picture)), thread=office.thread
        ).run_id
        office.serve(run)
        assert office.model.requests[0].messages[0]["content"] == office.log()[0]["content"]
        assert office.log()[0]["content"][1]["source"]["data"] == "aGk="
        office.ended(run)


def test_10_the_run_is_stored_at_every_stage(server_url: str) -> None:
    stored: list[tuple[str, int, int]] = []
    with Clerk(server_url, [calls("look"), "Done."]) as office:
        run = office.submit()
        raw = office.dispatcher.messages
        office.look = lambda point: stored.append(
            (point, len(raw(office.thread, raw=True)), len(office.dispatcher.calls(run)))
        )
        office.serve(run)
    # A call is in the log and in the journal before it runs; its result is in the log before the model goes on.
    assert ("before_model", 0, 0) in stored
    assert ("tool_started", 2, 1) in stored
    assert ("before_model", 3, 0) in stored


@pytest.mark.parametrize("point", ["claimed", "before_model", "after_model", "before_commit"])
def test_11_a_run_killed_after_its_input_is_finished_by_another_worker(server_url: str, point: str) -> None:
    with Clerk(server_url, ["Hi."]) as office:
        run = office.submit()
        assert office.serve(run, point)
        office.serve(run)
        assert office.words() == [("user", "hello"), ("assistant", "Hi.")]
        assert office.record(run).step == 1
        office.ended(run)


@pytest.mark.parametrize("point", ["after_commit", "tool_started", "tool_finished", "tools_done"])
def test_12_a_run_killed_around_its_tools_is_finished_by_another_worker(server_url: str, point: str) -> None:
    with Clerk(server_url, [calls("look"), "Done."]) as office:
        run = office.submit()
        assert office.serve(run, point)
        office.serve(run)
        assert office.results() == ["seen"]
        assert len(office.model.requests) == 2, "an answer that is stored is not asked for again"
        office.ended(run)


def test_14_what_is_left_out_never_splits_a_call_from_its_result(server_url: str) -> None:
    policy = ContextPolicy(max_context_tokens=900, max_output_tokens=100, min_recent_messages=2)

    def answer(_: Any) -> Any:
        step = len(office.model.requests)
        return {"calls": [{"id": f"c{step}", "name": "look", "arguments": {"at": "x" * 900}}]} if step < 6 else "Done."

    with Clerk(server_url, answer, context=policy, instructions="Be brief.") as office:
        office.ended(office.run())
        for request in office.model.requests:
            valid(request.messages)
            assert request.messages[0]["role"] == "system"
            assert text(request.messages[1]) == "hello"
        assert len(office.model.requests[-1].messages) < len(office.log())


def test_15_what_is_stored_can_be_read_by_another_process(server_url: str) -> None:
    """Everything a run is made of is plain data."""
    with Clerk(server_url, [calls("look", "pay"), "Done."]) as office:
        run = office.run()
        json.dumps([office.log(), office.events(run), office.record(run).as_dict(), office.state(run)])


def test_16_a_tool_that_fails_again_and_again(server_url: str) -> None:
    with Clerk(server_url, lambda _: calls("fail")) as office:
        run = office.run()
        assert len(done) == 4, "three times, and once more after being told of all three"
        notes = [text(message) for message in office.log() if message.get("visibility") == "internal"]
        assert len(notes) == 1
        assert notes[0].count("out of paper") == 3
        office.ended(run, "stopped", "tool_errors")


def test_16_a_success_ends_a_streak(server_url: str) -> None:
    worked = []

    @tool
    def moody() -> str:
        """Works every third time."""
        worked.append(1)
        if len(worked) % 3:
            raise ValueError("no")
        return "yes"

    with Clerk(server_url, [*[calls("moody")] * 9, "Done."], tools=[moody]) as office:
        office.ended(office.run())


def test_16_a_streak_survives_a_change_of_worker(server_url: str) -> None:
    with Clerk(server_url, lambda _: calls("fail")) as office:
        run = office.submit()
        for _ in range(3):
            assert office.serve(run, "after_commit", nth=2)
        office.serve(run)
        assert len(done) == 4
        office.ended(run, "stopped", "tool_errors")


def test_17_steering_is_read_in_order_and_by_its_own_thread(server_url: str) -> None:
    @tool
    async def meanwhile(ctx: ToolContext) -> str:
        """Three wishes come while this runs."""
        async with AsyncDispatcher(server_url) as dispatcher:
            for wish in ("one", "two", "three"):
                await dispatcher.send(ctx.thread_id, wish)
        return "ok"

    with Clerk(server_url, [calls("meanwhile"), "Done."], tools=[meanwhile]) as office:
        office.ended(office.run())
        assert [words for _, words in office.words()][3:] == ["one", "two", "three", "Done."]


# -- parity ------------------------------------------------------------------------------------------------------------


def test_parity_thoughts_are_shown_and_kept(server_url: str) -> None:
    with Clerk(server_url, [{"think": "Let me think.", "say": "Yes."}]) as office:
        run = office.run()
        assert {"type": "reasoning_delta", "delta": "Let me think."}.items() <= office.events(run)[2].items()
        assert office.log()[-1]["content"][0] == {"type": "thinking", "text": "Let me think."}


def test_parity_a_tool_policy_denies_replaces_and_sees_the_call(server_url: str) -> None:
    def policy(request: Request) -> Any:
        return {"pay": Deny("not today"), "look": Replace("a picture of it")}.get(request.tool)

    script = [calls("pay", "look", "fail"), "Done."]
    with Clerk(server_url, script, plugins=[ToolPolicy(policy)]) as office:
        run = office.run()
        assert office.results()[:2] == ["not today", "a picture of it"]
        assert done == ["call-1-3"], "the others of the answer go on"
        office.ended(run)


def test_parity_allow_always_is_kept_by_key(server_url: str) -> None:
    with Clerk(server_url, [calls("pay"), calls("pay"), "Done."]) as office:
        run = office.run()
        office.dispatcher.decide(run, "call-1-1", "allow_always")
        office.serve(run)
        assert done == ["call-1-1", "call-2-1"]
        office.ended(run)


@pytest.mark.parametrize("point", ["call_journaled", "tool_started", "before_commit", "before_suspend"])
def test_parity_allow_always_outlives_the_worker_that_heard_it(server_url: str, point: str) -> None:
    @tool(idempotent=True, needs_approval=Approval("Pay?", action_key="pay"))
    def pay(ctx: ToolContext) -> str:
        """Somebody is asked first."""
        done.append(ctx.call_id)
        return "paid"

    @tool(idempotent=True, needs_approval=Approval("Sell?"))
    def sell() -> str:
        """Somebody is asked first, every time."""
        return "sold"

    with Clerk(server_url, [calls("pay", "sell", "sell"), calls("pay"), "Done."], tools=[pay, sell]) as office:
        run = office.run()
        office.dispatcher.decide(run, "call-1-1", "allow_always")
        office.dispatcher.decide(run, "call-1-2", "allow_once")
        office.serve(run, point, nth=2 if point != "before_suspend" else 1)
        office.serve(run)
        office.dispatcher.decide(run, "call-1-3", "allow_once")
        office.serve(run)
        assert "call-2-1" in done, "it was allowed for good"
        office.ended(run)


def test_parity_the_three_middleware_hooks(server_url: str) -> None:
    class Polite(Middleware):
        """Rewrites on all three sides."""

        def on_user_message(self, message: Plain, context: HookContext) -> Plain:
            return {**message, "content": [{"type": "text", "text": f"{text(message)}, please"}]}

        def on_pre_llm(self, messages: tuple[Plain, ...], context: HookContext) -> tuple[Plain, ...]:
            return (*messages, {"role": "user", "content": [{"type": "text", "text": "Be kind."}]})

        def on_post_llm(self, reply: Reply, context: HookContext) -> Reply:
            return Reply(text=reply.text.replace("damn", "dear"), calls=reply.calls, usage=reply.usage)

    with Clerk(server_url, ["damn cat"], plugins=[MiddlewareChain(Polite())]) as office:
        run = office.submit()
        assert office.serve(run, "before_model")
        office.serve(run)
        assert office.words() == [("user", "hello, please"), ("assistant", "dear cat")]
        assert [text(message) for message in office.model.requests[-1].messages] == ["hello, please", "Be kind."]


def test_parity_a_tool_may_end_the_run_unless_another_failed(server_url: str) -> None:
    @tool
    def over() -> Finish:
        """Ends the run."""
        return Finish("the end")

    script = [calls("over", "fail"), calls("over")]
    with Clerk(server_url, script, tools=[over, fail]) as office:
        run = office.run()
        assert len(office.model.requests) == 2
        assert office.events(run)[-1]["result"] == "the end"
        office.ended(run, "behavior_requested")


def test_parity_progress_of_a_tool_is_shown(server_url: str) -> None:
    @tool
    async def slow(ctx: ToolContext) -> str:
        """Tells how far it is."""
        ctx.tell("half")
        ctx.tell("way")
        return "done"

    with Clerk(server_url, [calls("slow"), "Done."], tools=[slow]) as office:
        told = office.events(office.run())
        (shown,) = [event for event in told if event["type"] == "tool_call_stream_delta"]
        assert (shown["id"], shown["delta"]) == ("call-1-1", "halfway")


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        (TokenBudget(max_total=20), "token_budget"),
        (MaxToolCalls(max=1), "max_tool_calls"),
        (MaxCost(max_usd=1), "max_cost"),
    ],
)
def test_parity_budgets(server_url: str, limit: Any, code: str) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.6}
    with Clerk(server_url, lambda _: {**calls("look"), "usage": usage}, stop=[limit]) as office:
        run = office.run()
        assert len(office.model.requests) == 2
        assert office.record(run).usage.input_tokens == 20
        office.ended(run, "stopped", code)


def test_parity_a_cut_off_answer_is_continued(server_url: str) -> None:
    def answer(request: Any) -> Plain:
        asked = len(office.model.requests)
        return {"say": f"part {asked} ", "stop": "max_tokens" if asked < 3 else "end_turn"}

    with Clerk(server_url, answer) as office:
        run = office.run()
        assert office.words()[-1] == ("assistant", "part 1 part 2 part 3 ")
        assert office.record(run).usage.output_tokens == 15
        office.ended(run)


def test_parity_usage_is_kept_by_step_run_and_thread(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), "Done.", "Again."]) as office:
        first, second = office.run(), office.run()
        for run, steps in ((first, 2), (second, 1)):
            told = [event for event in office.events(run) if event["type"] == "inference_complete"]
            assert [event["usage"]["output_tokens"] for event in told] == [5] * steps
            assert office.record(run).usage.output_tokens == 5 * steps
        assert office.dispatcher.get_thread(office.thread).usage.output_tokens == 15


def test_parity_every_mistake_of_an_app_is_found_at_once(server_url: str) -> None:
    @tool(name="look")
    def other() -> str:
        """Has the name of another."""
        return ""

    with pytest.raises(InvalidInput) as found:
        App(
            [
                Agent("clerk", model=ScriptedModel(), tools=[look, other, "nosuch"], plugins=["nothing"]),
                Agent("clerk", model=ScriptedModel(), delegates=["nobody"]),
                Agent("empty"),
            ]
        )
    for problem in ("'look' comes from", "'nosuch' does not exist", "'nothing' does not exist", "defined twice"):
        assert problem in found.value.message
    assert "'nobody'" in found.value.message
    assert "neither a model nor a loop" in found.value.message


def test_parity_an_output_that_is_too_long_is_cut_in_characters(server_url: str) -> None:
    @tool
    def long() -> str:
        """Says a lot."""
        return "äöü" * 1000

    with Clerk(server_url, [calls("long"), "Ok."], tools=[long], behaviour=Behaviour(output_limit=100)) as office:
        run = office.run()
        assert len(office.results()[0]) <= 100
        assert "3000 characters" in office.results()[0]
        office.ended(run)
