"""An app whose runs are replayed: every kind of tool there is, and a count of those that were carried out."""

from collections import Counter
from typing import Any

from postroom.worker.app import Agent, App
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.tools import Approval, Finish, Handoff, Output, Suspend, Tool, ToolContext, ToolFailed, tool

carried_out: Counter[str] = Counter()


@tool
def add(a: int, b: int) -> dict[str, int]:
    """Adds."""
    carried_out["add"] += 1
    return {"sum": a + b, "nth": carried_out["add"]}


@tool
def look() -> Output:
    """Looks."""
    carried_out["look"] += 1
    return Output({"seen": carried_out["look"]}, "Something is there.", metadata={"nth": carried_out["look"]})


@tool
def fail() -> str:
    """Fails."""
    carried_out["fail"] += 1
    raise ToolFailed(f"failed {carried_out['fail']} times")


@tool(needs_approval=lambda arguments: Approval(f"Pay {arguments['to']}?", action_key=f"pay:{arguments['to']}"))
def pay(to: str) -> str:
    """Pays."""
    carried_out["pay"] += 1
    return f"paid {to}"


@tool(needs_approval=lambda _: Approval("Quick?", expires_in=60))
def hurry() -> str:
    """Nobody will be in time."""
    return "never"


@tool
def ask(ctx: ToolContext) -> str | Suspend:
    """Asks somebody itself."""
    carried_out["ask"] += 1
    return f"they said {ctx.decision.result}" if ctx.decision else Suspend("What do you think?")


@tool
def transfer() -> Handoff:
    """Hands over."""
    return Handoff("boss")


@tool
def done(answer: str) -> Finish:
    """Ends the run."""
    return Finish({"answer": answer})


@tool
def long() -> str:
    """Says more than is shown."""
    return "word " * 10_000


TOOLS: tuple[Tool, ...] = (add, look, fail, pay, hurry, ask, transfer, done, long)


def _calls(*calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": arguments} for name, arguments in calls]


SCRIPTS: dict[str, list[Any]] = {
    "words": ["Hello."],
    "thoughts": [{"think": "Hm.", "say": "Hello."}],
    "tool": [{"say": "Let me see.", "calls": _calls(("add", {"a": 1, "b": 2}))}, "It is 3."],
    "parallel": [{"calls": _calls(("add", {"a": 1, "b": 2}), ("look", {}), ("add", {"a": 3, "b": 4}))}, "Done."],
    "steps": [{"calls": _calls(("add", {"a": i, "b": i}))} for i in range(4)] + ["Done."],
    "mistakes": [
        {"calls": _calls(("nosuch", {}), ("add", {"a": "x"}), ("fail", {}))},
        {"calls": [{"name": "add", "arguments": "{oops"}]},
        "Sorry.",
    ],
    "approval": [{"calls": _calls(("pay", {"to": "bob"}), ("look", {}))}, "Paid."],
    "question": [{"calls": _calls(("ask", {}))}, "I see."],
    "expiry": [{"calls": _calls(("hurry", {}))}, "Too late."],
    "handoff": [{"calls": _calls(("transfer", {}))}, "This is the boss."],
    "end": [{"calls": _calls(("done", {"answer": "42"}))}],
    "long": [{"calls": _calls(("long", {}))}, "That was long."],
    "rounds": [{"say": f"Round {i}.", "calls": _calls(("add", {"a": i, "b": 0}))} for i in range(9)],
}


def app_of(kind: str) -> App:
    """The app whose model follows one of the scripts."""
    model = ScriptedModel(SCRIPTS[kind])
    names = ("clerk", "boss")
    return App([Agent(name, model=model, tools=TOOLS, instructions=name, max_rounds=5) for name in names])


app = app_of("parallel")
