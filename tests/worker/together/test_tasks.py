"""Background tasks: started with the step that asks for them, heard of by mail, ended with whoever started them."""

from collections import Counter
from typing import Any

import pytest

from postroom.mailbox import keys, ops
from postroom.mailbox.lane import delete
from postroom.worker import Agent, App, Behaviour, ToolContext, ToolFailed, tool
from postroom.worker.core.tasks import REMEMBERED, TASKS, found, heard, name_refused
from postroom.worker.model.base import Request
from postroom.worker.model.scripted import ScriptedModel
from tests.worker.loop.office import text, valid
from tests.worker.together.town import Town, calling

ran: Counter[str] = Counter()


@tool(idempotent=True)
async def dig(metres: int, ctx: ToolContext) -> dict[str, int]:
    """Digs."""
    ran[ctx.idempotency_key] += 1
    await ctx.emit("progress", {"dug": metres // 2})
    return {"dug": metres}


@tool
def fall(ctx: ToolContext) -> str:
    """Falls."""
    raise ToolFailed("the ladder broke", code="ladder")


@tool(needs_approval=True)
def risky() -> str:
    """Somebody is asked first."""
    return "done"


def town(url: str, script: Any, helper: Any = lambda _: "Helped.", **about: Any) -> Town:
    names = ["spawn_task", "cancel_task", "list_tasks", "send_message"]
    agents = [
        Agent("clerk", model=ScriptedModel(script), tools=names, delegates=["helper"], **about),
        Agent("helper", model=ScriptedModel(helper), tools=[risky, *names], delegates=["helper"]),
    ]
    return Town(url, App(agents, tasks=[dig, fall]))


def spawn(name: str = "bob", **more: Any) -> dict[str, Any]:
    return calling("spawn_task", **{"agent": "helper", "prompt": "help", "name": name, **more})


def events(office: Town, thread: str = "") -> list[dict[str, Any]]:
    """What tasks have said, as the model was told."""
    noted = [message.get("metadata", {}).get("task_event") for message in office.log(thread)]
    return [event for event in noted if event]


def tasks(office: Town) -> list[Any]:
    return [run for run in office.runs().values() if run.parent]


def test_a_task_is_started_at_once_and_wakes_the_run_that_waits_for_it(server_url: str) -> None:
    with town(server_url, [spawn(), "It is on its way.", "Bob has helped."]) as office:
        run = office.submit()
        office.work(bells=1)
        record = office.record(run)
        assert (record.status, record.waiting, record.worker) == ("waiting", "tasks", None)
        assert office.words()[-1] == ("assistant", "It is on its way.")
        task_id = office.tool_results()[0]["task_id"]
        office.work()
        record = office.record(run)
        assert (record.status, record.termination.kind) == ("done", "natural_end")
        (heard_of,) = events(office)
        assert (heard_of["kind"], heard_of["task_id"]) == ("completed", task_id)
        told = next(message for message in office.log() if message.get("metadata"))
        assert text(told).startswith(f'<background-task-event kind="completed" task_id="{task_id}">{{')
        assert text(told).endswith("</background-task-event>")
        assert told["visibility"] == "internal"
        assert office.words()[-1] == ("assistant", "Bob has helped.")
        valid(office.log())


def test_a_function_is_a_task_too_and_tells_of_its_progress(server_url: str) -> None:
    script = [calling("spawn_task", function="dig", arguments={"metres": 6}), "Digging.", "Dug.", "Dug."]
    with town(server_url, script) as office:
        run = office.submit()
        office.work()
        assert [(event["kind"], event.get("event_type")) for event in events(office)] == [
            ("custom", "progress"),
            ("completed", None),
        ]
        assert events(office)[0]["payload"] == {"dug": 3}
        assert events(office)[1]["result"]["output"] == {"dug": 6}
        assert office.record(run).status == "done"


def test_a_task_that_fails_is_heard_of(server_url: str) -> None:
    with town(server_url, [calling("spawn_task", function="fall"), "Hm.", "Too bad."]) as office:
        run = office.submit()
        office.work()
        (event,) = events(office)
        assert event["kind"] == "failed"
        assert event["error"] == "ladder: the ladder broke"
        assert office.record(run).status == "done"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "an agent with a prompt, or a function"),
        ({"agent": "helper", "function": "dig"}, "and not both"),
        ({"agent": "stranger", "prompt": "x"}, "no agent 'stranger'"),
        ({"function": "fly"}, "no function 'fly'"),
        ({"agent": "helper"}, "prompt is missing"),
        ({"function": "dig", "arguments": {"metres": "deep"}}, "metres"),
    ],
)
def test_what_cannot_be_started_is_told_to_the_model(server_url: str, arguments: Any, words: str) -> None:
    with town(server_url, [calling("spawn_task", **arguments), "Hm."]) as office:
        office.submit()
        office.work()
        assert words in office.words()[-2][1]
        assert len(office.runs()) == 1


@pytest.mark.parametrize("name", ["parent", "self", "all", "broadcast"])
def test_some_names_have_a_meaning_of_their_own(name: str) -> None:
    assert name_refused({}, "t", name) == "reserved_name"


def test_two_tasks_at_work_cannot_have_one_name(server_url: str) -> None:
    both = [*spawn("bob")["calls"], *spawn("bob")["calls"]]
    with town(server_url, [{"calls": both}, "One then.", "Fine."]) as office:
        office.submit()
        office.work()
        first, second = office.tool_results()
        assert first["status"] == "running"
        assert "'bob' is at work already" in second
        assert len(tasks(office)) == 1


def test_there_is_a_limit_to_tasks(server_url: str) -> None:
    both = [*spawn("ann")["calls"], *spawn("bob")["calls"]]
    with town(server_url, [{"calls": both}, "One then.", "Fine."], behaviour=Behaviour(children=1)) as office:
        office.submit()
        office.work()
        assert "1 children at work" in office.tool_results()[1]


def test_a_task_can_be_sent_a_message_by_name(server_url: str) -> None:
    def helper(request: Request) -> Any:
        asked = any(message["role"] == "tool" for message in request.messages)
        return "Understood." if asked else calling("risky")

    to_bob = calling("send_message", to={"relation": "child", "name": "bob"}, message="hurry")
    with town(server_url, [spawn(), to_bob, "Told him.", "Fine."], helper) as office:
        office.submit()
        office.work()
        (task,) = tasks(office)
        office.dispatcher.decide(task.run_id, "call-1-1", "allow_once")
        office.work()
        (event,) = events(office, task.thread_id)
        assert (event["kind"], event["event_type"]) == ("custom", "agent_message")
        assert event["payload"] == {"from": "clerk", "content": "hurry"}
        assert office.record(task.run_id).termination.kind == "natural_end"


def test_a_message_to_a_task_that_has_ended_is_refused(server_url: str) -> None:
    to_bob = calling("send_message", to={"relation": "child", "name": "bob"}, message="hurry")
    with town(server_url, [spawn(), "Wait.", to_bob, "Too late."]) as office:
        office.submit()
        office.work()
        assert office.tool_results()[-1] == {
            "message_id": "", "status": "failed", "error": "recipient_unavailable"
        }  # fmt: skip


def test_a_task_can_write_to_its_parent(server_url: str) -> None:
    def helper(request: Request) -> Any:
        to_parent = calling("send_message", to={"relation": "parent"}, message="nearly there")
        return to_parent if len(request.messages) == 1 else "Done."

    with town(server_url, [spawn(), "Wait.", "I see.", "I see."], helper) as office:
        run = office.submit()
        office.work()
        assert "nearly there" in [words for _, words in office.words()]
        assert office.record(run).status == "done"


def test_a_task_can_be_cancelled_by_name_with_all_below_it(server_url: str) -> None:
    def helper(request: Request) -> Any:
        if text(request.messages[0]) == "help" and len(request.messages) == 1:
            return calling("spawn_task", agent="helper", prompt="sign", name="inner")
        return calling("risky") if text(request.messages[0]) == "sign" else "Waiting."

    cancel = calling("cancel_task", target={"relation": "child", "name": "bob"})
    with town(server_url, [spawn(), "Wait.", cancel, calling("list_tasks"), "Stopped."], helper) as office:
        run = office.submit()
        office.work()
        assert len(tasks(office)) == 2
        office.dispatcher.send(office.thread, "stop bob", sender="ann")
        office.work()
        receipt, listed = office.tool_results()[-2:]
        bob = next(task.run_id for task in tasks(office) if task.parent.run_id == run)
        assert receipt == {"status": "accepted", "root_task_id": bob, "cancelled_count": 2}
        assert [task["status"] for task in listed["tasks"]] == ["cancelled"]
        assert {(task.status, task.termination.kind) for task in tasks(office)} == {("done", "cancelled")}
        assert office.record(run).status == "done"
        assert len(office.runs()) == 3


def test_there_must_be_a_task_to_cancel(server_url: str) -> None:
    with town(server_url, [calling("cancel_task", target={"relation": "child", "name": "bob"}), "Hm."]) as office:
        office.submit()
        office.work()
        assert office.tool_results() == [
            {"status": "failed", "root_task_id": "", "cancelled_count": 0, "error": "task_not_found"}
        ]


def test_a_task_may_cancel_itself(server_url: str) -> None:
    def helper(request: Request) -> Any:
        return calling("cancel_task", target={"relation": "self"})

    with town(server_url, [spawn(), "Wait.", "He gave up."], helper) as office:
        run = office.submit()
        office.work()
        (event,) = events(office)
        assert event["kind"] == "cancelled"
        assert office.record(run).status == "done"


def test_who_is_cancelled_takes_its_tasks_along(server_url: str) -> None:
    with town(server_url, [spawn(), "Wait."], [calling("risky"), "Done."]) as office:
        run = office.submit()
        office.work()
        office.dispatcher.cancel(run)
        office.sweep()
        office.work()
        assert {each.status for each in office.runs().values()} == {"done"}
        # Nobody was woken to hear of it.
        assert events(office) == []
        assert len(office.runs()) == 2


def test_newer_words_leave_tasks_at_work(server_url: str) -> None:
    def clerk(request: Request) -> Any:
        if len(request.messages) == 1:
            return spawn()
        return "Fine."

    with town(server_url, clerk, [calling("risky"), "Done."]) as office:
        first = office.submit()
        office.work()
        second = office.submit("how is it going?")
        office.sweep()
        office.work()
        assert office.record(first).termination.code == "superseded"
        assert office.record(second).waiting == "tasks"
        (task,) = tasks(office)
        assert task.status == "waiting"
        office.dispatcher.decide(task.run_id, "call-1-1", "allow_once")
        office.work()
        assert [event["kind"] for event in events(office)] == ["completed"]
        assert office.record(second).termination.kind == "natural_end"


def test_a_task_whose_run_is_gone_is_an_orphan(server_url: str) -> None:
    with town(server_url, [spawn(), "Wait.", "It is gone.", "Yes."], [calling("risky"), "Done."]) as office:
        run = office.submit()
        office.work()
        (task,) = tasks(office)
        client = office.dispatcher.client
        # An operator deletes what is in the way.
        client.delete(keys.lane(task.thread_id), keys.timers(task.thread_id), keys.outbox(task.thread_id))
        client.hset(keys.thread(task.thread_id), mapping={"open": "", "outbox": 0})
        ops.run(client, delete(task.thread_id))
        client.delete(keys.run_index(task.run_id))
        office.served.remove(task.run_id)
        office.dispatcher.send(office.thread, "well?", sender="ann")
        office.work()
        (event,) = events(office)
        assert event["error"].startswith("task orphaned: ")
        assert office.record(run).status == "done"


def test_of_tasks_that_ended_the_latest_are_remembered() -> None:
    known: dict[str, Any] = {}
    for number in range(REMEMBERED + 5):
        known = TASKS.apply(known, {f"t{number}": {"task_id": f"t{number}", "status": "running", "name": "n"}})
        known = TASKS.apply(known, {f"t{number}": {"status": "completed"}})
    assert len(known) == REMEMBERED
    last = found(known, "n")
    assert last
    assert last["task_id"] == f"t{REMEMBERED + 4}"


def test_only_an_end_changes_a_task() -> None:
    task = {"task_id": "t", "status": "running"}
    said = [
        {"metadata": {"task_event": {"task_id": name, "kind": kind}}}
        for name, kind in (("t", "custom"), ("x", "failed"))
    ]
    assert heard({"t": task}, [*said, {"role": "user"}], 5) == {}
    said[0]["metadata"]["task_event"]["kind"] = "cancelled"
    assert heard({"t": task}, said, 5) == {"t": {"status": "cancelled", "completed_at_ms": 5}}


@pytest.mark.parametrize(
    "point", ["before_commit", "after_commit", "tool_finished", "tools_done", "carrying", "carried"]
)
def test_a_task_is_done_once_wherever_a_worker_dies(server_url: str, point: str) -> None:
    nth = 1
    while True:
        ran.clear()
        script = [calling("spawn_task", function="dig", arguments={"metres": 6}), *["Digging."] * 4]
        with town(server_url, script) as office:
            run = office.submit()
            deaths = office.work(point, nth)
            office.sweep()
            office.work()
            assert office.record(run).termination.kind == "natural_end"
            assert sorted(event["kind"] for event in events(office)) == ["completed", "custom"]
            assert len(office.runs()) == 2
            assert len(ran) == 1
            if not deaths:
                break
        nth += 1
    assert nth > 1


def test_a_function_that_may_not_be_repeated_is_reported(server_url: str) -> None:
    calls = []

    @tool
    def once() -> str:
        """Must not be repeated."""
        calls.append(1)
        return "done"

    agent = Agent(
        "clerk", model=ScriptedModel([calling("spawn_task", function="once"), "Hm.", "I see."]), tools=["spawn_task"]
    )
    with Town(server_url, App([agent], tasks=[once])) as office:
        office.submit()
        assert office.work("tool_finished", nth=2)
        office.work()
        assert calls == [1]
        (event,) = events(office)
        assert event["error"].startswith("outcome_unknown: ")


def test_a_fork_does_not_wait_for_the_tasks_of_another_thread(server_url: str) -> None:
    def clerk(request: Request) -> Any:
        if len(request.messages) == 1:
            return spawn()
        to_bob = calling("send_message", to={"relation": "child", "name": "bob"}, message="hurry")
        return to_bob if text(request.messages[-1]) == "and now?" else "Fine."

    with town(server_url, clerk, [calling("risky"), "Done."]) as office:
        run = office.submit()
        office.work()
        assert office.record(run).waiting == "tasks"
        fork = office.dispatcher.fork(office.thread).thread_id
        there = office.submit("and now?", thread=fork)
        office.work()
        assert office.record(there).termination.kind == "natural_end"
        assert office.tool_results(fork)[-1]["error"] == "permission_denied"
        assert office.record(run).waiting == "tasks"
