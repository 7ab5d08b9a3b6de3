"""What the model gets to read of a long thread, and summaries made beside the run."""

from typing import Any

from postroom.mailbox import log
from postroom.mailbox.ops import run as run_op
from postroom.worker import Agent, App, tool
from postroom.worker.core.compaction import CompactionPolicy
from postroom.worker.core.context import ContextPolicy
from postroom.worker.model.base import Request
from postroom.worker.model.errors import ContextOverflow
from postroom.worker.model.scripted import ScriptedModel
from tests.worker.loop.office import Office, text, valid

LONG = "word " * 2000


class Summariser(ScriptedModel):
    """Sums up, and counts how often it was asked to."""

    def __init__(self) -> None:
        super().__init__(lambda _: f"Summary {len(self.requests)}: much was said.", name="summariser")


@tool
def chatter() -> str:
    """Says a lot."""
    return LONG


def _office(url: str, model: ScriptedModel, summariser: ScriptedModel, threshold: int = 2000) -> Office:
    agent = Agent(
        "clerk",
        model=model,
        tools=[chatter],
        context=ContextPolicy(max_context_tokens=20_000, max_output_tokens=1000, autocompact_threshold=threshold),
        compaction=CompactionPolicy(summary_model="summariser", summary_max_tokens=100),
    )
    return Office(url, App([agent], models={"summariser": summariser}))


def test_a_long_thread_is_summed_up_and_read_from_the_mark(server_url: str) -> None:
    summariser = Summariser()
    model = ScriptedModel(lambda _: LONG)
    with _office(server_url, model, summariser) as office:
        for turn in range(4):
            office.run(f"question {turn}")
        assert len(summariser.requests) >= 1
        thread = office.dispatcher.get_thread(office.thread)
        assert thread.mark > 1
        last: Request = model.requests[-1]
        assert "Summary" in text(last.messages[0])
        assert "question 3" in text(last.messages[-1])
        # What is covered is still there for whoever wants all of it.
        everything = run_op(office.dispatcher.client, log.read(office.thread))
        assert sum("question" in text(entry.message) for entry in everything) == 4
        valid(office.log())


def test_a_summary_takes_up_the_one_before(server_url: str) -> None:
    summariser = Summariser()
    model = ScriptedModel(lambda _: LONG)
    with _office(server_url, model, summariser) as office:
        for turn in range(8):
            office.run(f"question {turn}")
        assert len(summariser.requests) >= 2
        assert "Summary 1" in text(summariser.requests[1].messages[-1])
        shown = [text(message) for message in model.requests[-1].messages]
        assert sum("<conversation-summary>" in words for words in shown) == 1


def test_a_failing_summary_leaves_the_thread_as_it_was(server_url: str) -> None:
    broken = ScriptedModel(lambda _: RuntimeError("no summary today"), name="summariser")
    model = ScriptedModel(lambda _: LONG)
    with _office(server_url, model, broken) as office:
        for turn in range(3):
            office.run(f"question {turn}")
        assert broken.requests
        assert office.dispatcher.get_thread(office.thread).mark == 0
        assert len(office.log()) == 6


def test_a_request_found_too_long_is_made_shorter_once(server_url: str) -> None:
    tries = []

    def answer(request: Request) -> Any:
        tries.append(sum(len(text(message)) for message in request.messages))
        return ContextOverflow("too long") if len(tries) == 3 else LONG

    summariser = Summariser()
    with _office(server_url, ScriptedModel(answer), summariser, threshold=19_000) as office:
        for turn in range(3):
            run = office.run(f"question {turn}")
        assert len(tries) == 4
        assert tries[3] < tries[2]
        assert "stream_reset" in office.types(run)
        assert office.record(run).termination.kind == "natural_end"


def test_the_model_is_never_sent_more_than_its_window(server_url: str) -> None:
    script = [{"calls": [{"name": "chatter"}]}] * 10 + ["Done."]
    model = ScriptedModel(script)
    agent = Agent(
        "clerk", model=model, tools=[chatter], context=ContextPolicy(max_context_tokens=8000, max_output_tokens=1000)
    )
    with Office(server_url, App([agent])) as office:
        run = office.run()
        assert office.record(run).status == "done"
        sizes = [sum(len(text(message)) for message in request.messages) for request in model.requests]
        assert max(sizes) < 7000 * 4
        for request in model.requests:
            valid(request.messages)


def test_the_full_output_of_a_cut_result_can_be_had(server_url: str) -> None:
    @tool(output_limit=100)
    def long() -> str:
        """Says too much."""
        return "äö" * 500

    agent = Agent("clerk", model=ScriptedModel([{"calls": [{"name": "long"}]}, "Ok."]), tools=[long])
    with Office(server_url, App([agent])) as office:
        run = office.run()
        shown = next(words for role, words in office.words() if role == "tool")
        assert len(shown) <= 100
        assert "1000 characters" in shown
        assert office.dispatcher.tool_output(run, "call-1-1") == "äö" * 500
