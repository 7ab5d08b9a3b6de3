"""The loop's steps, on a real server: what is said, what is told, how often Redis is asked."""

from dataclasses import replace

from postroom.worker.app import Agent, App
from postroom.worker.model.errors import Unauthorized
from postroom.worker.model.reply import Reply
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.plugins.base import HookContext
from postroom.worker.plugins.middleware import Middleware, MiddlewareChain
from postroom.worker.scripted import Scripted
from postroom.worker.tools import Finish, Handoff, tool
from tests.worker.loop.office import Office, in_order, valid

CALLS = {"say": "Let me see.", "calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def _office(url: str, script: list[object], **agent: object) -> Office:
    model = ScriptedModel(script)  # type: ignore[arg-type]
    return Office(url, App([Agent("clerk", model=model, instructions="Be brief.", **agent)]))  # type: ignore[arg-type]


def test_a_plain_answer(server_url: str) -> None:
    with _office(server_url, ["Good morning."]) as office:
        run = office.run("hello")
        assert office.words() == [("user", "hello"), ("assistant", "Good morning.")]
        told = office.types(run)
        assert told == ["run_start", "step_start", "text_delta", "inference_complete", "step_end", "run_finish"]
        record = office.record(run)
        assert record.status == "done"
        assert record.termination.kind == "natural_end"
        assert record.usage.output_tokens == 5


def test_a_tool_and_then_words(server_url: str) -> None:
    with _office(server_url, [CALLS, "It is 5."], tools=[add]) as office:
        run = office.run("2+3?")
        assert office.words() == [
            ("user", "2+3?"),
            ("assistant", "Let me see."),
            ("tool", "5"),
            ("assistant", "It is 5."),
        ]
        valid(office.log())
        told = office.types(run)
        in_order(told)
        assert told == [
            "run_start",
            "step_start",
            "text_delta",
            "tool_call_start",
            "tool_call_delta",
            "tool_call_ready",
            "inference_complete",
            "tool_call_done",
            "step_end",
            "step_start",
            "text_delta",
            "inference_complete",
            "step_end",
            "run_finish",
        ]
        assert office.record(run).step == 2
        # One commit for the intent, one for the results, one for the end.
        assert office.record(run).commits == 3
        assert office.record(run).usage.output_tokens == 10


def test_a_tool_may_end_the_run(server_url: str) -> None:
    @tool
    def done(answer: str) -> Finish:
        """Ends the run."""
        return Finish({"answer": answer})

    with _office(server_url, [{"calls": [{"name": "done", "arguments": {"answer": "42"}}]}], tools=[done]) as office:
        run = office.run()
        assert office.record(run).termination.kind == "behavior_requested"
        assert office.events(run)[-1]["result"] == {"answer": "42"}
        valid(office.log())


def test_unknown_tools_and_wrong_arguments_are_told_to_the_model(server_url: str) -> None:
    calls = [
        {"name": "nosuch"},
        {"name": "add", "arguments": {"a": "x"}},
        {"name": "add", "arguments": "{oops"},
        {"name": "add", "arguments": {"a": 1, "b": 1}},
    ]
    with _office(server_url, [{"calls": calls}, "Sorry."], tools=[add]) as office:
        run = office.run()
        results = [words for role, words in office.words() if role == "tool"]
        assert results[0] == "tool 'nosuch' not found"
        assert "cannot be called" in results[1]
        assert "not JSON" in results[2]
        assert results[3] == "2"
        valid(office.log())
        in_order(office.types(run))
        assert office.record(run).status == "done"


def test_a_handoff_may_go_to_an_agent_with_a_loop_of_its_own(server_url: str) -> None:
    @tool
    def pass_on() -> Handoff:
        """Hands over."""
        return Handoff("echo")

    clerk = Agent("clerk", model=ScriptedModel([{"calls": [{"name": "pass_on"}]}]), tools=[pass_on])
    with Office(server_url, App([clerk, Agent("echo", Scripted(["", "I am the echo."]))])) as office:
        run = office.run()
        assert office.words()[-1] == ("assistant", "I am the echo.")
        assert office.record(run).termination.kind == "natural_end"


def test_what_a_filter_takes_back_was_never_shown(server_url: str) -> None:
    class Discreet(Middleware):
        def on_post_llm(self, reply: Reply, context: HookContext) -> Reply:
            return replace(reply, text=reply.text.replace("secret", "***"))

    model = ScriptedModel([{"say": "The secret is out.", "chunk": 3}])
    agent = Agent("clerk", model=model, plugins=[MiddlewareChain(Discreet())])
    with Office(server_url, App([agent])) as office:
        run = office.run()
        assert office.words()[-1] == ("assistant", "The *** is out.")
        shown = "".join(event["delta"] for event in office.events(run) if event["type"] == "text_delta")
        assert shown == "The *** is out."


def test_what_no_retry_would_mend_is_on_the_list_of_the_dead(server_url: str) -> None:
    with _office(server_url, [Unauthorized("no key")]) as office:
        run = office.run()
        record = office.record(run)
        assert (record.termination.kind, record.termination.code) == ("error", "model_unauthorized")
        assert record.attempts == 0
        assert run in {each.run_id for each in office.dispatcher.list_runs(dead=True, thread=office.thread).items}


class Farewell(Middleware):
    """Counts the ends of runs."""

    def __init__(self) -> None:
        self.ends = 0

    def on_run_end(self, context: HookContext) -> None:
        """One more."""
        self.ends += 1


def test_a_run_that_gets_mail_during_its_last_words_ends_once(server_url: str) -> None:
    farewell = Farewell()
    with _office(server_url, ["First.", "Second."], plugins=[MiddlewareChain(farewell)]) as office:
        run = office.submit("hello")

        def mail_comes(point: str) -> None:
            if point == "after_model" and office.points.count(point) == 1:
                office.dispatcher.send(office.thread, "and another thing")
                office.desk.mail_came(run)  # what a worker does when its channel says so

        office.look = mail_comes
        office.serve(run)
        assert [words for _, words in office.words()] == ["hello", "First.", "and another thing", "Second."]
        assert farewell.ends == 1
        valid(office.log())
        in_order(office.types(run))
        assert office.types(run).count("run_finish") == 1


def test_what_was_said_of_mail_that_has_been_read_is_no_reason_to_go_on(server_url: str) -> None:
    with _office(server_url, ["Only this."]) as office:
        run = office.submit("hello")
        office.look = lambda point: office.desk.mail_came(run) if point == "after_model" else None
        office.serve(run)
        assert [words for _, words in office.words()] == ["hello", "Only this."]
        assert office.record(run).status == "done"
