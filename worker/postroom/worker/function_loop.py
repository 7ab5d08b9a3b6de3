"""Functions as runs: a background task that needs no model takes one step, in which it is called."""

from typing import Any

from postroom.mailbox.contracts import Termination
from postroom.mailbox.lifecycle import TerminationKind
from postroom.worker.core.calls import Outcome, failure
from postroom.worker.core.render import result_text
from postroom.worker.core.state import State
from postroom.worker.core.tasks import TASKS
from postroom.worker.emitting import emitter
from postroom.worker.loop import Continue, Finish, Pen, Standing, Turn
from postroom.worker.tools.base import Tool, ToolContext
from postroom.worker.tools.execute import execute
from postroom.worker.working import OUTCOME_UNKNOWN

CALL = "call-1"


class _Begun:
    """Says that the step was begun by this very worker."""

    def close(self) -> None:
        """Nothing is kept."""


class FunctionLoop:
    """Calls a function; that it is about to be called is committed first, so that nobody calls it twice unawares."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool

    async def step(self, standing: Standing, pen: Pen) -> Turn:
        """The note that the call begins, then the call."""
        if not standing.step_open:
            pen.tell({"type": "step_start"})
            pen.tell({"type": "tool_call_start", "id": CALL, "name": self.tool.name})
            return Turn(then=Continue(), memory=_Begun())
        if not isinstance(standing.memory, _Begun) and not self.tool.idempotent:
            outcome = failure("outcome_unknown", OUTCOME_UNKNOWN)
        else:
            pen.reach("tool_started")
            outcome = await execute(self.tool, _arguments(standing), self._context(standing, pen))
            pen.reach("tool_finished")
        pen.tell({"type": "step_end"})
        said = {"role": "assistant", "content": [{"type": "text", "text": result_text(outcome)}]}
        return Turn((said,), then=Finish(_termination(outcome), _result(outcome)), errands=outcome.command.errands)

    def _context(self, standing: Standing, pen: Pen) -> ToolContext:
        def tell(words: str) -> None:
            pen.tell({"type": "tool_call_stream_delta", "id": CALL, "name": self.tool.name, "delta": words})

        request = standing.request
        return ToolContext(
            standing.thread_id,
            standing.run_id,
            standing.agent,
            standing.step,
            CALL,
            self.tool.name,
            standing.attempt + 1,
            request.get("deadline"),
            request.get("tenant"),
            State().register((TASKS,)),
            tell=tell,
            request=request,
            client=pen.dispatcher,
            emit=emitter(standing, pen, CALL),
        )


def _arguments(standing: Standing) -> dict[str, Any]:
    given: dict[str, Any] = standing.request.get("metadata", {}).get("arguments") or {}
    return given


def _termination(outcome: Outcome) -> Termination:
    if outcome.status == "success":
        return Termination(kind=TerminationKind.NATURAL_END)
    if outcome.status == "pending":
        return Termination(kind=TerminationKind.ERROR, code="cannot_wait", message="a function task cannot wait")
    code = outcome.data["error"]["code"] if isinstance(outcome.data, dict) and "error" in outcome.data else "failed"
    return Termination(kind=TerminationKind.ERROR, code=code, message=(outcome.message or "")[:2000])


def _result(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.status != "success":
        return None
    return {"response": result_text(outcome), "output": outcome.data}
