"""The agent loop: asks the model while no call is open, carries calls out while some are, waits when none may go on."""

from collections.abc import Mapping
from typing import Any, Protocol

from postroom.mailbox.contracts import Termination
from postroom.mailbox.lifecycle import TerminationKind
from postroom.worker.asking import ask
from postroom.worker.core.delegation import reason
from postroom.worker.core.step import CallModel, RunTools, WaitForDecisions, next_move
from postroom.worker.loop import Finish, Pen, Standing, Turn, Wait
from postroom.worker.plan import Plan, with_frontend_tools
from postroom.worker.registry import Served
from postroom.worker.remote.attending import Engaged, RemotePlan, abort, attend
from postroom.worker.scene import Memory, Scene
from postroom.worker.working import work


class Plans(Protocol):
    """Where plans are found: the registry, or what stands for it in a replay."""

    async def find(self, agent: str, pinned: str = "") -> Served | None:
        """The plan of an agent, in the version a run began with."""
        ...


class AgentLoop:
    """Serves runs of every agent the registry knows; where a run stands decides what it does, and nothing else."""

    def __init__(self, registry: Plans) -> None:
        self.registry = registry

    async def step(self, standing: Standing, pen: Pen) -> Turn:
        """One turn."""
        plan = await self._plan(standing)
        if isinstance(plan, RemotePlan):
            return await attend(standing, pen, plan)
        if plan is None:
            words = f"no agent {standing.agent!r} to hand over to"
            return Turn(then=Finish(Termination(kind=TerminationKind.BLOCKED, code="handoff_failed", message=words)))
        scene = Scene(standing, pen, plan)
        match next_move(standing.calls):
            case CallModel():
                return await ask(scene)
            case RunTools(calls):
                return await work(scene, calls)
            case WaitForDecisions(tickets):
                waits = Wait(reason(tickets), tickets=tickets)
                return scene.turn(calls=standing.calls, folds=False, then=waits)

    async def abort(self, standing: Standing, pen: Pen) -> Mapping[str, Any]:
        """Stops what a remote agent does for a run; nobody else has anything at work elsewhere."""
        plan = await self._plan(standing)
        return await abort(standing, pen, plan) if isinstance(plan, RemotePlan) else {}

    async def _plan(self, standing: Standing) -> Served | None:
        """The one of the turn before, or the one the run began with; after a handoff that of the new agent."""
        memory = standing.memory
        if isinstance(memory, Memory | Engaged) and memory.plan.agent.id == standing.agent:
            return memory.plan
        plan = await self.registry.find(standing.agent, standing.config)
        offered = standing.request.get("frontend_tools")
        return with_frontend_tools(plan, offered) if isinstance(plan, Plan) and offered else plan
