"""The twenty points that a fleet of this kind is held to, one by one; the number of each is in its test's name."""

import asyncio
from typing import Any

import pytest

from postroom.dispatcher import AsyncDispatcher
from postroom.mailbox import commit, keys, lock, ops, watch
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.contracts import FrontendTool, Termination
from postroom.mailbox.errors import (
    AlreadyDecided,
    FenceLost,
    NothingToDo,
    RunNotFound,
    ThreadBusy,
    TicketNotFound,
)
from postroom.mailbox.lifecycle import TerminationKind, WaitingReason
from postroom.worker.app import Agent, App
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.permission import Behavior
from postroom.worker.core.state import Scope, StateKey
from postroom.worker.core.stop import StopOnTool
from postroom.worker.loop import Finish, Pen, Standing, Turn, Wait
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plugins.base import HookContext, Plugin, Registrar
from postroom.worker.plugins.permission import Permission, permit
from postroom.worker.tools import Handoff, Output, ToolContext, tool
from tests.worker.loop.clerk import Clerk, calls, done, look, pay
from tests.worker.loop.office import Office, Plain


@tool
def push(ctx: ToolContext) -> str:
    """Must not be repeated."""
    done.append(ctx.call_id)
    return "pushed"


TOOLS = (look, push, pay)


def test_01_two_workers_claim_at_once(server_url: str) -> None:
    with Clerk(server_url, [calls("look", "push"), "Done."], tools=TOOLS) as office:
        run = office.submit()
        office.race(run, 3)
        assert done == ["call-1-1", "call-1-2"]
        assert office.points.count("claimed") == 1
        office.ended(run, "natural_end")


def test_02_a_worker_dies_after_its_first_step(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), "Done."]) as office:
        run = office.submit()
        assert office.serve(run, "after_commit", nth=2)
        assert office.record(run).step == 1
        office.serve(run)
        assert office.record(run).step == 2
        assert [role for role, _ in office.words()] == ["user", "assistant", "tool", "assistant"]
        assert done == ["call-1-1"]
        office.ended(run, "natural_end")


@pytest.mark.parametrize("point", ["tool_started", "tool_finished"])
def test_03_a_worker_dies_during_a_tool(server_url: str, point: str) -> None:
    with Clerk(server_url, [calls("look"), calls("push"), "Done."], tools=TOOLS) as office:
        run = office.submit()
        assert office.serve(run, point)
        assert office.serve(run, point, nth=2)
        office.serve(run)
        results = [words for role, words in office.words() if role == "tool"]
        assert results[0] == "seen", "what may be repeated is"
        assert "not known" in results[1], "of the other the model is told"
        assert done.count("call-2-1") <= 1
        office.ended(run, "natural_end")


@pytest.mark.parametrize("point", ["before_suspend", "after_commit"])
def test_04_a_worker_dies_as_its_run_begins_to_wait(server_url: str, point: str) -> None:
    with Clerk(server_url, [calls("pay"), "Done."]) as office:
        run = office.submit()
        assert office.serve(run, point)
        office.serve(run)
        record = office.record(run)
        assert (record.status, record.waiting) == ("waiting", "approval")
        office.dispatcher.decide(run, "call-1-1", "allow_once")
        office.serve(run)
        assert done == ["call-1-1"]
        office.ended(run, "natural_end")


def test_04_a_waiting_run_that_is_looked_at_again_keeps_waiting(server_url: str) -> None:
    with Clerk(server_url, [calls("pay"), "Done."]) as office:
        run = office.run()
        told = office.events(run)
        office.serve(run)
        ops.run(office.dispatcher.client, watch.reclaim(office.thread, 5))
        office.serve(run)
        assert (office.record(run).status, office.events(run)) == ("waiting", told)
        office.dispatcher.decide(run, "call-1-1", "allow_once")
        office.serve(run)
        office.ended(run, "natural_end")


def test_05_one_of_two_calls_is_decided(server_url: str) -> None:
    with Clerk(server_url, [calls("pay", "pay"), "Done."]) as office:
        run = office.run()
        office.dispatcher.decide(run, "call-1-2", "allow_once")
        office.serve(run)
        assert (office.record(run).status, done) == ("waiting", ["call-1-2"])
        office.whole(run)
        office.dispatcher.decide(run, "call-1-1", "allow_once")
        office.serve(run)
        assert done == ["call-1-2", "call-1-1"]
        office.ended(run, "natural_end")


def test_05_one_of_two_calls_is_decided_while_a_worker_is_there(server_url: str) -> None:
    @tool
    async def meanwhile(ctx: ToolContext) -> str:
        """Somebody decides while this runs."""
        async with AsyncDispatcher(server_url) as dispatcher:
            await dispatcher.decide(ctx.run_id, "call-1-1", "allow_once")
        return "ok"

    with Clerk(server_url, [calls("pay", "pay", "meanwhile"), "Done."], tools=(pay, meanwhile)) as office:
        run = office.run()
        assert (office.record(run).status, done) == ("waiting", ["call-1-1"])
        office.dispatcher.decide(run, "call-1-2", "deny")
        office.serve(run)
        office.ended(run, "natural_end")


def test_06_a_rule_denies_what_was_approved_meanwhile(server_url: str) -> None:
    @tool
    def forbid() -> Output:
        """Adds a rule."""
        return Output("forbidden", updates=[permit("push", Behavior.DENY)])

    section = {"permission": {"default_behavior": "allow", "rules": [{"tool": "push", "behavior": "ask"}]}}
    script = [calls("push", "forbid"), "Done."]
    plugins = [Permission()]
    with Clerk(server_url, script, tools=(push, forbid), plugins=plugins, sections=section) as office:
        run = office.run()
        assert office.record(run).status == "waiting"
        office.dispatcher.decide(run, "call-1-1", "allow_once")
        office.serve(run)
        assert done == []
        office.ended(run, "blocked", "blocked")


def test_07_a_decision_counts_once_and_a_stale_one_not_at_all(server_url: str) -> None:
    with Clerk(server_url, [calls("pay"), calls("pay"), "Done."]) as office:
        run = office.run()
        for _ in range(2):
            office.dispatcher.decide(run, "call-1-1", "allow_once", decision_id="d1")
        with pytest.raises(AlreadyDecided):
            office.dispatcher.decide(run, "call-1-1", "deny", decision_id="d2")
        office.serve(run)
        assert (office.record(run).status, done) == ("waiting", ["call-1-1"])
        # Delivered once more, an old one neither ends the run nor answers the next question.
        office.dispatcher.decide(run, "call-1-1", "allow_once", decision_id="d1")
        for target in ("call-1-1", "approve_call-1-1", "nosuch"):
            with pytest.raises(TicketNotFound):
                office.dispatcher.decide(run, target, "allow_once", decision_id=f"late-{target}")
        office.serve(run)
        assert (office.record(run).status, done) == ("waiting", ["call-1-1"])
        office.dispatcher.decide(run, "call-2-1", "deny")
        office.serve(run)
        office.ended(run, "natural_end")


def test_08_cancel_a_queued_run(server_url: str) -> None:
    with Clerk(server_url, ["Done."]) as office:
        run = office.submit()
        office.dispatcher.cancel(run)
        office.serve(run)
        record = office.record(run)
        assert (record.status, record.termination.kind) == ("done", "cancelled")
        assert office.types(run) == ["run_finish"]


def test_08_cancel_a_run_that_is_running_here(server_url: str) -> None:
    @tool
    async def hang(ctx: ToolContext) -> str:
        """Never ends by itself."""
        journal = keys.calls(office.thread, ctx.run_id)
        while b"succeeded" not in office.dispatcher.client.hvals(journal):  # noqa: ASYNC110 - a thread works on it
            await asyncio.sleep(0)
        office.dispatcher.cancel(ctx.run_id)
        asyncio.get_running_loop().call_soon(office.desk.active[ctx.run_id].request_cancel, "cancelled")
        await asyncio.Event().wait()
        return ""

    with Clerk(server_url, [calls("look", "hang"), "Done."], tools=(look, hang)) as office:
        run = office.run()
        assert office.words()[-2:] == [("tool", "seen"), ("tool", "[tool call cancelled]")]
        office.ended(run, "cancelled", "cancelled")


def test_08_cancel_a_run_that_is_running_elsewhere(server_url: str) -> None:
    """No word reaches the worker: it finds out with its next commit."""

    def answer(_: Any) -> Plain:
        office.dispatcher.cancel(run)
        return calls("look")

    with Clerk(server_url, answer) as office:
        run = office.submit()
        office.serve(run)
        assert done == []
        office.ended(run, "cancelled", "cancelled")


def test_08_cancel_a_waiting_run(server_url: str) -> None:
    with Clerk(server_url, [calls("look", "pay"), "Done."]) as office:
        run = office.run()
        office.dispatcher.cancel(run)
        office.serve(run)
        office.ended(run, "cancelled", "cancelled")


def test_08_cancel_a_run_whose_worker_died(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), "Done."]) as office:
        run = office.submit()
        office.serve(run, "tool_started")
        office.dispatcher.cancel(run)
        office.serve(run)
        assert done == []
        office.ended(run, "cancelled", "cancelled")


def test_09_interrupt_then_enqueue(server_url: str) -> None:
    with Clerk(server_url, lambda _: "Done.") as office:
        old = office.submit("one")
        new = office.submit("two", on_busy="interrupt")
        office.serve(old)
        office.serve(new)
        assert office.record(new).epoch == office.record(old).epoch + 1
        assert office.record(old).termination.kind == "cancelled"
        assert office.words() == [("user", "two"), ("assistant", "Done.")]
        office.ended(new, "natural_end")


def test_10_an_old_owner_comes_back(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), "Done."]) as office:
        run = office.submit()
        office.serve(run, "after_commit", nth=1)
        old = Owner(office.thread, run, office.record(run).fence)
        office.serve(run)
        log, told = office.log(), office.events(run)
        client, number = office.dispatcher.client, office.record(run).commits + 1
        natural = Termination(kind=TerminationKind.NATURAL_END)
        for refused in (
            lock.renew(old.thread_id, run, old.fence, 10_000),
            lock.release(old.thread_id, run, old.fence, "drain"),
            commit.commit(old, Batch(number)),
            commit.suspend(old, Batch(number), WaitingReason.APPROVAL),
            commit.finish(old, Batch(number), natural),
        ):
            with pytest.raises(FenceLost):
                ops.run(client, refused)
        assert (office.log(), office.events(run)) == (log, told)


def test_11_a_lease_ends_one_millisecond_after_its_time(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), "Done."]) as office:
        run = office.submit()
        assert office.serve(run, "tool_started", noticed=False)
        holder = office.dispatcher.holder(office.thread)
        assert holder is not None
        ops.run(office.dispatcher.client, watch.reclaim(office.thread, 5, now=holder.lease_until))
        assert office.record(run).status == "running"
        ops.run(office.dispatcher.client, watch.reclaim(office.thread, 5, now=holder.lease_until + 1))
        assert office.record(run).status == "queued"
        office.serve(run)
        office.ended(run, "natural_end")


def test_12_a_passing_error_is_retried_ever_later_and_given_up(server_url: str) -> None:
    with Clerk(server_url, [{"error": "overloaded"}], settings={"max_attempts": 5}) as office:
        run = office.submit()
        for earlier, wait in ((0, 250), (0, 250), (250, 500), (500, 1000)):
            office.serve(run)
            record = office.record(run)
            assert record.status == "queued"
            assert earlier < record.start_at - record.updated <= wait
            office.skip_to_start(run)
        office.serve(run)
        assert office.record(run).attempts == 5
        assert office.dispatcher.client.zscore(keys.DEAD, run) is not None
        office.ended(run, "error", "attempts_exhausted")


def test_12_a_lasting_error_ends_the_run_at_once(server_url: str) -> None:
    with Clerk(server_url, [{"error": "unauthorized"}]) as office:
        run = office.run()
        assert office.record(run).attempts == 0
        office.ended(run, "error", "model_unauthorized")


def test_13_a_refused_submission_leaves_no_trace(server_url: str) -> None:
    with Clerk(server_url, [calls("look"), "Done."]) as office:
        run = office.submit()
        office.serve(run, "tool_started", noticed=False)
        log = office.log()
        with pytest.raises(ThreadBusy, match=run):
            office.submit("me too", run_id="refused", on_busy="reject")
        with pytest.raises(RunNotFound):
            office.record("refused")
        assert office.log() == log
        # An interrupt whose victim does not answer waits for it: nobody runs beside it.
        other = office.submit("me instead", on_busy="interrupt")
        with pytest.raises(NothingToDo):
            ops.run(office.dispatcher.client, lock.claim(office.thread, other, "another", 10_000))
        assert office.log() == log


def test_14_steering_is_read_by_the_next_inference(server_url: str) -> None:
    @tool
    async def meanwhile(ctx: ToolContext) -> str:
        """Somebody has a wish while this runs."""
        async with AsyncDispatcher(server_url) as dispatcher:
            await dispatcher.steer(ctx.thread_id, "in French, please")
        return "ok"

    model = ScriptedModel([calls("meanwhile"), "Bien.", "Encore."])
    with Clerk(server_url, [], model=model, tools=[meanwhile]) as office:
        run = office.run()
        assert office.words()[-2:] == [("user", "in French, please"), ("assistant", "Bien.")]
        assert [len(request.messages) for request in model.requests] == [1, 4]
        office.ended(run, "natural_end")
        late = office.dispatcher.steer(office.thread, "and again")
        office.serve(late.run_id)
        assert late.run_id != run
        assert office.words()[-2:] == [("user", "and again"), ("assistant", "Encore.")]


def test_14_steering_that_meets_the_last_words_is_not_lost(server_url: str) -> None:
    def answer(request: Any) -> str:
        if len(request.messages) == 1:
            office.dispatcher.steer(office.thread, "wait")
        return f"answer to {len(request.messages)}"

    with Clerk(server_url, answer) as office:
        run = office.run()
        assert [words for _, words in office.words()] == ["hello", "answer to 1", "wait", "answer to 3"]
        office.ended(run, "natural_end")


def test_15_mail_sent_again_is_read_once(server_url: str) -> None:
    with Clerk(server_url, lambda _: "Done.") as office:
        run = office.submit()
        for _ in range(2):
            office.dispatcher.send(office.thread, "psst", mail_id="m1")
        office.serve(run)
        office.dispatcher.send(office.thread, "psst", mail_id="m1")
        assert [words for role, words in office.words() if role == "user"] == ["hello", "psst"]
        assert office.dispatcher.unread(office.thread) == []
        office.ended(run, "natural_end")


def test_16_a_run_that_waits_for_its_tasks_is_woken_as_the_same_run(server_url: str) -> None:
    class Delegating:
        """Waits for what it has started, then ends."""

        async def step(self, standing: Standing, pen: Pen) -> Turn:
            came = any(message["content"][0]["text"] == "task done" for message in standing.arrived)
            return Turn(then=Finish() if came else Wait(WaitingReason.TASKS))

    with Office(server_url, App([Agent("clerk", loop=Delegating())])) as office:
        run = office.run()
        assert (office.record(run).status, office.record(run).waiting) == ("waiting", "tasks")
        assert office.dispatcher.holder(office.thread) is None
        office.dispatcher.send(office.thread, "task done")
        office.serve(run)
        record = office.record(run)
        assert (record.status, record.termination.kind) == ("done", "natural_end")


NOTES: StateKey[list[str], str] = StateKey("notes", [], lambda old, new: [*old, new], Scope.THREAD)


class Taking(Plugin):
    """Notes when its agent comes and goes."""

    def __init__(self, name: str) -> None:
        self.id = name  # type: ignore[misc]

    def register(self, registrar: Registrar) -> None:
        registrar.key(NOTES)
        registrar.hook(Phase.STEP_START, lambda _: Command((NOTES.update(f"{self.id} step"),)))

    def on_activate(self, context: HookContext) -> Command:
        return Command((NOTES.update(f"{self.id} in"),))

    def on_deactivate(self, context: HookContext) -> Command:
        return Command((NOTES.update(f"{self.id} out"),))


@pytest.mark.parametrize("die_at", ["", "tools_done", "after_commit", "before_model"])
def test_17_a_handoff_swaps_the_agent_and_survives(server_url: str, die_at: str) -> None:
    @tool(idempotent=True)
    def transfer() -> Handoff:
        """Hands over."""
        return Handoff("boss")

    @tool
    def sign() -> str:
        """Only the boss may."""
        return "signed"

    clerk, boss = ScriptedModel([calls("transfer")], "clerk"), ScriptedModel([{}, calls("sign", "where"), "Signed."])
    other = Agent("boss", model=boss, tools=[sign], plugins=[Taking("b")])
    with Clerk(server_url, [], other, model=clerk, tools=[transfer], plugins=[Taking("c")]) as office:
        run = office.submit(frontend_tools=[FrontendTool(name="where", description="Where the user is.")])
        if die_at:
            assert office.serve(run, die_at, nth=2 if die_at in ("after_commit", "before_model") else 1)
        office.serve(run)
        office.dispatcher.decide(run, "call-2-2", "answer", result="Bern")
        office.serve(run)
        assert office.state(run)["notes"] == ["c in", "c step", "c out", "b in", "b step", "b step"]
        assert [spec.name for spec in clerk.requests[0].tools] == ["transfer", "where"]
        assert [spec.name for spec in boss.requests[-1].tools] == ["sign", "where"]
        assert [words for role, words in office.words() if role == "tool"][1:] == ["signed", "Bern"]
        record = office.record(run)
        assert (record.agent, office.dispatcher.get_thread(office.thread).agent) == ("clerk", "boss")
        office.ended(run, "natural_end")
        assert office.state(run)["notes"][0] == "c in", "what the thread knew is still there"


def test_17_a_handoff_to_nobody(server_url: str) -> None:
    @tool
    def transfer() -> Handoff:
        """Hands over."""
        return Handoff("nobody")

    with Clerk(server_url, [calls("transfer")], tools=[transfer]) as office:
        office.ended(office.run(), "blocked", "handoff_failed")


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"max_rounds": 1}, "max_rounds"), ({"stop": [StopOnTool(tool_name="look")]}, "stop_on_tool")],
)
def test_18_a_stop_keeps_the_last_words_and_runs_no_tool(server_url: str, limits: Any, code: str) -> None:
    with Clerk(server_url, [{"say": "Let me see.", **calls("look")}], **limits) as office:
        run = office.run()
        assert done == []
        assert office.words()[-1] == ("assistant", "Let me see.")
        assert "tool_calls" not in office.log()[-1]
        assert office.events(run)[-1]["result"] == {"response": "Let me see."}
        assert office.types(run)[-2:] == ["step_end", "run_finish"]
        office.ended(run, "stopped", code)


def test_18_the_limit_of_rounds_counts_across_waits_and_deaths(server_url: str) -> None:
    with Clerk(server_url, lambda _: calls("pay"), max_rounds=3) as office:
        run = office.submit()
        office.serve(run, "after_commit")
        office.serve(run)
        for step in (1, 2):
            office.dispatcher.decide(run, f"call-{step}-1", "deny")
            office.serve(run)
        assert office.record(run).step == 3
        office.ended(run, "stopped", "max_rounds")


def test_19_a_commit_that_is_refused_leaves_nothing_behind(server_url: str) -> None:
    """One writer per thread, fenced: there is nothing to conflict with, and what cannot be written is not begun."""
    with Clerk(server_url, ["x" * 20_000], settings={"max_body_bytes": 4096}) as office:
        run = office.run()
        assert office.words() == [("user", "hello")]
        assert office.record(run).usage.output_tokens == 0
        office.ended(run, "error", "body_too_large")
