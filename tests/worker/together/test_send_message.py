"""send_message, rule by rule: who can be reached, what the receipt says, and that a message arrives once."""

from typing import Any

import pytest

from postroom.mailbox import keys
from postroom.mailbox.contracts import Parent
from postroom.mailbox.errors import NotFound
from postroom.worker import Agent, App, tool
from postroom.worker.core.tasks import TASKS, addressed
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plan import Plan
from postroom.worker.tools.base import Tool
from postroom.worker.tools.send_message import send_message
from tests.worker.loop.office import text
from tests.worker.together.town import Town, calling
from tests.worker.tools.calling import called, reason


def town(url: str, script: list[Any], tools: tuple[Tool, ...] = (), **settings: Any) -> Town:
    names: list[Tool | str] = ["send_message", "message_receipt", "recover_failed_messages", *tools]
    agents = [
        Agent("clerk", model=ScriptedModel(script), tools=names),
        Agent("friend", model=ScriptedModel(lambda _: "Thank you.")),
    ]
    return Town(url, App(agents), **settings)


def to_agent(town: Town, words: str = "psst", **more: Any) -> dict[str, Any]:
    return calling("send_message", to={"relation": "agent", "thread_id": f"{town.thread}-b", **more}, message=words)


@pytest.fixture
def friend(server_url: str) -> Any:
    with town(server_url, []) as made:
        yield made


def scripted(town: Town, *script: Any) -> None:
    plan = town.app.registry.plan("clerk")
    assert isinstance(plan, Plan)
    plan.model.script = list(script)  # type: ignore[attr-defined]


# -- addressing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ({"message": "x"}, "to is missing"),
        ({"to": {}, "message": "x"}, "to.relation is missing"),
        ({"to": {"relation": "sibling"}, "message": "x"}, "to.relation must be one of"),
        ({"to": {"relation": "child"}, "message": "x"}, "to.name is missing"),
        ({"to": {"relation": "agent"}, "message": "x"}, "to.thread_id is missing"),
        ({"to": {"relation": "parent"}}, "message is missing"),
    ],
)
def test_malformed_input_is_the_only_tool_error(arguments: Any, missing: str) -> None:
    outcome = called(send_message, arguments)
    assert outcome.failed
    assert reason(outcome) == "invalid_arguments"
    assert missing in (outcome.message or "")


def test_without_a_parent_there_is_nobody_to_reach(friend: Town) -> None:
    scripted(friend, calling("send_message", to={"relation": "parent"}, message="hello?"), "Alone.")
    friend.run()
    assert friend.tool_results() == [{"message_id": "", "status": "failed", "error": "recipient_unavailable"}]


def test_an_unknown_child_is_not_found(friend: Town) -> None:
    scripted(friend, calling("send_message", to={"relation": "child", "name": "bob"}, message="hello?"), "Alone.")
    friend.run()
    assert friend.tool_results() == [{"message_id": "", "status": "failed", "error": "recipient_not_found"}]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, None),
        ({"status": "completed"}, "recipient_unavailable"),
        ({"task_type": "function"}, "recipient_unavailable"),
        ({"owner_thread_id": "another"}, "permission_denied"),
    ],
)
def test_a_child_must_be_ours_and_alive_and_have_ears(change: dict[str, str], code: str | None) -> None:
    task = {"task_id": "bg_1", "name": "bob", "status": "running", "task_type": "agent", "owner_thread_id": "t"}
    tasks = TASKS.apply({}, {"bg_1": {**task, **change}})
    for name in ("bg_1", "bob"):
        found = addressed(tasks, "t", name)
        assert found == code if code else found == tasks["bg_1"]


def test_an_address_that_cannot_be_one_is_told_to_the_model(friend: Town) -> None:
    wrong = {"relation": "agent", "thread_id": "a{b}"}
    scripted(friend, calling("send_message", to=wrong, message="x"), "Hm.")
    friend.run()
    (receipt,) = friend.tool_results()
    assert receipt["status"] == "failed"
    assert receipt["error"].startswith("transport_failed: ")


def test_a_parent_is_reached_on_its_thread(friend: Town) -> None:
    scripted(friend, calling("send_message", to={"relation": "parent"}, message="done"), "Ok.")
    home = f"{friend.thread}-home"
    friend.dispatcher.submit("friend", "hello", thread=home, queue=friend.thread)
    friend.work()
    friend.submit(parent=Parent(thread_id=home, run_id="whoever"))
    friend.work()
    assert [text(message) for message in friend.log(home)][-2:] == ["done", "Thank you."]


# -- delivery --------------------------------------------------------------------------------------------------------


def test_mail_to_an_idle_thread_starts_a_run_of_its_own_agent(friend: Town) -> None:
    there = f"{friend.thread}-b"
    friend.dispatcher.submit("friend", "hello", thread=there, queue=friend.thread)
    friend.work()
    scripted(friend, to_agent(friend), "Sent.")
    friend.submit()
    friend.work()
    (receipt,) = friend.tool_results()
    assert receipt["status"] == "queued"
    said = friend.log(there)
    assert [text(message) for message in said][-2:] == ["psst", "Thank you."]
    assert said[-2]["id"] == receipt["message_id"]
    assert said[-2]["metadata"]["sender_agent_id"] == "clerk"
    assert friend.dispatcher.get_thread(there).agent == "friend"


def test_mail_to_a_new_thread_needs_an_agent(friend: Town) -> None:
    scripted(friend, to_agent(friend, agent_id="friend"), "Sent.")
    friend.submit()
    friend.work()
    assert [text(message) for message in friend.log(f"{friend.thread}-b")] == ["psst", "Thank you."]


def test_mail_to_a_running_run_is_folded_in_at_its_next_step(server_url: str) -> None:
    with town(server_url, []) as office:
        there = f"{office.thread}-b"

        @tool
        async def interlude() -> str:
            """Something comes in meanwhile."""
            office.dispatcher.send(there, "by the way", sender="ann")
            return "done"

        plan = App([Agent("busy", model=ScriptedModel([calling("interlude"), "I see."]), tools=[interlude])])
        office.app = plan
        run = office.dispatcher.submit("busy", "go", thread=there, queue=office.thread).run_id
        office.work()
        assert [text(message) for message in office.log(there)] == ["go", "", "done", "by the way", "I see."]
        assert office.record(run).status == "done"


def test_a_waiting_run_reads_its_mail_when_it_goes_on(friend: Town) -> None:
    there = f"{friend.thread}-b"

    @tool(needs_approval=True)
    def risky() -> str:
        """Somebody is asked first."""
        return "done"

    waiting = Agent("waiting", model=ScriptedModel([calling("risky"), "I see."]), tools=[risky])
    mates = [Agent("clerk", model=ScriptedModel([to_agent(friend), "Sent."]), tools=["send_message"]), waiting]
    friend.app = App(mates)
    run = friend.dispatcher.submit("waiting", "go", thread=there, queue=friend.thread).run_id
    friend.work()
    friend.submit()
    friend.work()
    assert friend.record(run).status == "waiting"
    assert [mail.sender for mail in friend.dispatcher.unread(there)] == ["clerk"]
    friend.dispatcher.decide(run, "call-1-1", "allow_once")
    friend.work()
    assert [text(message) for message in friend.log(there)][-3:] == ["done", "psst", "I see."]


def test_two_messages_of_one_step_arrive_in_order(friend: Town) -> None:
    one, two = to_agent(friend, "one", agent_id="friend"), to_agent(friend, "two", agent_id="friend")
    scripted(friend, {"calls": [*one["calls"], *two["calls"]]}, "Sent.")
    friend.submit()
    friend.work()
    assert [text(message) for message in friend.log(f"{friend.thread}-b")][:2] == ["one", "two"]


POINTS = (
    "before_commit",
    "after_commit",
    "tool_finished",
    "call_journaled",
    "tools_done",
    "carrying",
    "carried",
)  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_a_message_is_sent_once_wherever_its_worker_dies(server_url: str, point: str) -> None:
    nth = 1
    while True:
        with town(server_url, []) as office:
            both = [*to_agent(office, agent_id="friend")["calls"], *to_agent(office, "again")["calls"]]
            scripted(office, {"calls": both}, "Sent.")
            run = office.submit()
            deaths = office.work(point, nth)
            office.sweep()
            office.work()
            assert office.record(run).status == "done"
            said = [text(message) for message in office.log(f"{office.thread}-b")]
            assert [words for words in said if words != "Thank you."] == ["psst", "again"]
            if not deaths:
                break
        nth += 1
    assert nth > 1


def test_a_step_that_is_given_up_sends_nothing(server_url: str) -> None:
    with town(server_url, []) as office:
        scripted(office, to_agent(office, agent_id="friend"), "Sent.")
        run = office.submit()
        assert office.serve(run, "tools_done")
        office.dispatcher.cancel(run)
        office.work()
        assert not office.dispatcher.client.exists(keys.thread(f"{office.thread}-b"))


# -- receipts --------------------------------------------------------------------------------------------------------


def test_a_receipt_follows_a_message_from_its_sender_to_its_reader(friend: Town) -> None:
    scripted(friend, to_agent(friend, agent_id="friend"), "Sent.")
    run = friend.submit()
    # The bell for the sender is answered, and the process dies before it carries anything out.
    friend.next_bell()
    assert friend.serve(run, "carrying")
    mail = next(errand["message_id"] for errand in friend.tool_results())
    client = friend.dispatcher
    assert client.receipt(mail).status == "queued"
    client.carry_out(friend.thread)
    assert client.receipt(mail).status == "accepted"
    assert client.receipt(mail, f"{friend.thread}-b").status == "accepted"
    friend.work()
    assert client.receipt(mail).status == "applied"
    with pytest.raises(NotFound):
        client.receipt("msg-of-nobody")


def test_an_agent_can_ask_for_the_receipt(friend: Town) -> None:
    scripted(friend, to_agent(friend, agent_id="friend"), "Sent.")
    friend.submit()
    friend.work()
    mail = friend.tool_results()[0]["message_id"]
    scripted(friend, "", "", calling("message_receipt", message_id=mail), "So it was read.")
    friend.submit("and?")
    friend.work()
    assert friend.tool_results()[-1] == {
        "message_id": mail,
        "status": "applied",
        "thread_id": f"{friend.thread}-b",
    }


def test_a_full_mailbox_takes_the_message_later(server_url: str) -> None:
    with town(server_url, [], max_mail=1) as office:
        there = f"{office.thread}-b"
        office.dispatcher.send(there, "first", agent="friend", queue=office.thread)
        office.next_bell()
        scripted(office, to_agent(office, "second"), "Sent.")
        run = office.submit()
        office.work()
        mail = office.tool_results()[0]["message_id"]
        assert office.record(run).status == "done"
        assert office.dispatcher.receipt(mail).status == "queued"
        reader = office.dispatcher.list_runs(thread=there, limit=200).items[0].run_id
        office.serve(reader, thread=there)
        # Its time comes: the look at the sender's thread says so.
        office.dispatcher.client.delete(keys.outbox_tries(office.thread))
        office.dispatcher.carry_out(office.thread)
        office.work()
        assert office.dispatcher.receipt(mail).status == "applied"


def test_what_cannot_be_delivered_is_kept_and_can_be_recovered(friend: Town) -> None:
    there = f"{friend.thread}-b"
    scripted(friend, to_agent(friend), "Sent.", calling("recover_failed_messages", action="list"), "Hm.")
    friend.submit()
    friend.work()
    mail = friend.tool_results()[0]["message_id"]
    assert friend.dispatcher.receipt(mail).status == "failed"
    friend.submit("what happened?")
    friend.work()
    (lost,) = friend.tool_results()[-1]["messages"]
    assert (lost["message_id"], lost["to"]) == (mail, there)
    assert lost["error"].startswith("transport_failed: thread_not_found")
    friend.dispatcher.submit("friend", "now I am there", thread=there, queue=friend.thread)
    friend.work()
    scripted(friend, *[""] * 4, calling("recover_failed_messages", action="replay"), "Again.")
    friend.submit("try again")
    friend.work()
    friend.sweep()
    friend.work()
    assert friend.tool_results()[-1] == {"count": 1}
    assert friend.dispatcher.receipt(mail).status == "applied"
    assert "psst" in [text(message) for message in friend.log(there)]


def test_failed_messages_can_be_forgotten(friend: Town) -> None:
    scripted(friend, to_agent(friend), "Sent.", calling("recover_failed_messages", action="clear"), "Gone.")
    for words in ("send it", "forget it"):
        friend.submit(words)
        friend.work()
    assert friend.tool_results()[-1] == {"count": 1}
    assert friend.dispatcher.list_lost(friend.thread) == []
