"""Children of a run: what it takes to have one, and the errand that starts it."""

from typing import Any

from postroom.mailbox.contracts import Parent, RunRequest, message
from postroom.mailbox.errands import Errand, Kind
from postroom.mailbox.specs import Behaviour
from postroom.worker.core.calls import Outcome, failure
from postroom.worker.core.delegation import TOOL_PREFIX, deadline, policies, share
from postroom.worker.core.stop import RUN_STATS, StopPolicy
from postroom.worker.core.tasks import TASKS, pending
from postroom.worker.tools.base import Plain, ToolContext


class Nursery:
    """What one agent may ask of its children."""

    def __init__(self, behaviour: Behaviour, stops: tuple[StopPolicy, ...]) -> None:
        self.behaviour, self.stops = behaviour, stops

    def refusal(self, context: ToolContext) -> Outcome | None:
        """Why the run may not have another child."""
        depth = _depth(context)
        if depth > self.behaviour.depth:
            return failure("too_deep", f"a run {depth - 1} levels below the first may have no children; do it yourself")
        if _before(context) + len(pending(context.state[TASKS], context.thread_id)) >= self.behaviour.children:
            words = f"the run has {self.behaviour.children} children at work already; wait for some of them"
            return failure("too_many_children", words)
        if self._budget(context) is None:
            return failure("budget_exhausted", "nothing is left of the run's budget that a child could spend")
        return None

    def _budget(self, context: ToolContext) -> Any:
        ways = sum(name.startswith(TOOL_PREFIX) for _, name in context.calls) or 1
        return share((*self.stops, *policies(context.request)), context.state[RUN_STATS], ways)

    def birth(self, context: ToolContext, child: str, agent: str, words: str, reports: str, **metadata: Any) -> Errand:
        """The errand that starts a child, on a thread of its own that has the child's name."""
        asked = context.request
        parent = Parent.model_validate(
            {
                "thread_id": context.thread_id,
                "run_id": context.run_id,
                "call_id": context.call_id,
                "agent": context.agent,
                "reports": reports,
                "depth": _depth(context),
            }
        )
        request = RunRequest(
            run_id=child,
            thread_id=child,
            agent=agent,
            messages=(message("user", words),),
            queue=asked.get("queue") or "default",
            priority=asked.get("priority", 128),
            tenant=context.tenant,
            deadline=deadline(self.stops, context.state[RUN_STATS], context.deadline),
            parent=parent,
            budget=self._budget(context),
            metadata=metadata,
        )
        return Errand(Kind.SUBMIT, child, child, child, request.as_dict(), child=reports)


def _depth(context: ToolContext) -> int:
    """How deep a child of this run would be."""
    parent: Plain = context.request.get("parent") or {}
    return int(parent.get("depth", 0)) + 1


def _before(context: ToolContext) -> int:
    """How many delegates the step asked for before this call."""
    names = [call for call, name in context.calls if name.startswith(TOOL_PREFIX)]
    return names.index(context.call_id) if context.call_id in names else 0
