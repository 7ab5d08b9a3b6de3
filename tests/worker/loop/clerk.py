"""An office with one agent of a few tools, and what its runs must look like when they end."""

from typing import Any

from postroom.worker.app import Agent, App
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.tools import Approval, ToolContext, tool
from tests.worker.loop.office import Office, Plain, in_order, valid

# The calls that were carried out, in the order they ended.
done: list[str] = []


@tool(idempotent=True)
def look(ctx: ToolContext, at: str = "") -> str:
    """Looks."""
    done.append(ctx.call_id)
    return f"seen {at}".strip()


@tool(idempotent=True)
def fail(ctx: ToolContext) -> str:
    """Never works."""
    done.append(ctx.call_id)
    raise ValueError("out of paper")


@tool(idempotent=True, needs_approval=Approval("Pay?", action_key="pay"))
def pay(ctx: ToolContext) -> str:
    """Somebody is asked first."""
    done.append(ctx.call_id)
    return "paid"


def calls(*names: str) -> Plain:
    """An answer that calls tools."""
    return {"calls": [{"name": name} for name in names]}


class Clerk(Office):
    """The office; its model is at hand."""

    def __init__(self, url: str, script: Any, *others: Agent, settings: Plain | None = None, **agent: Any) -> None:
        done.clear()
        self.model = ScriptedModel(script)
        given = {"model": self.model, "tools": (look, fail, pay), **agent}
        super().__init__(url, App([Agent("clerk", **given), *others]), **{"max_attempts": 100, **(settings or {})})

    def results(self) -> list[str]:
        """What the tools said."""
        return [words for role, words in self.words() if role == "tool"]

    def ended(self, run: str, kind: str = "natural_end", code: str | None = None) -> None:
        """The run ended like this, its history is whole, and it was told of in order."""
        record = self.record(run)
        assert (record.status, record.termination.kind, record.termination.code) == ("done", kind, code)
        self.whole(run)

    def whole(self, run: str) -> None:
        """What holds whenever one looks: a valid history, events in order, no gap wherever one begins to read."""
        valid(self.log())
        told = list(self.dispatcher.events(run, live=False))
        types = [entry.event["type"] for entry in told]
        in_order(types)
        assert types.count("run_finish") == (self.record(run).status == "done")
        for cursor in range(len(told) + 1):
            assert list(self.dispatcher.events(run, after=cursor, live=False)) == told[cursor:]
