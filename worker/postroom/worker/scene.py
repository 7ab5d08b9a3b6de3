"""One turn of an agent in the making: where the run stands, who serves it, and what has come of it so far."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroom.mailbox.contracts import Termination, Usage
from postroom.mailbox.grants import PREFIX
from postroom.mailbox.log import Entry, folded
from postroom.worker.compacting import Compaction
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.compaction import Summary
from postroom.worker.core.context import Cache
from postroom.worker.core.context_messages import CONTEXT_MESSAGES
from postroom.worker.core.decisions import GRANTS
from postroom.worker.core.state import Scope, State, StateKey
from postroom.worker.core.stop import RUN_STATS
from postroom.worker.core.streaks import TOOL_STREAKS
from postroom.worker.core.tasks import TASKS
from postroom.worker.loop import Finish, Pen, Plain, Standing, Turn
from postroom.worker.plan import Plan
from postroom.worker.stage import KEYS, Stage

# Which agent's plugins were activated, how often the final answer was sent back, and which calls of the open step have
# changed the state already: what their journal says of that is not applied again.
ACTIVE: StateKey[str, str] = StateKey("runtime.active_agent", "")
REPAIRS: StateKey[int, int] = StateKey("runtime.repairs", 0)
APPLIED: StateKey[list[str], list[str]] = StateKey("runtime.applied_calls", [])
OWN_KEYS: tuple[StateKey[Any, Any], ...] = (
    ACTIVE,
    REPAIRS,
    APPLIED,
    GRANTS,
    RUN_STATS,
    TOOL_STREAKS,
    CONTEXT_MESSAGES,
    TASKS,
    *KEYS,
)
OWN = frozenset(key.name for key in OWN_KEYS)


@dataclass(slots=True)
class Memory:
    """What a turn leaves for the next one of the same activation; all of it can be had from Redis again."""

    plan: Plan
    state: State
    compaction: Compaction
    cache: Cache

    def close(self) -> None:
        """Nobody will go on from here."""
        self.compaction.give_up()


def now_ms() -> int:
    """The time, in milliseconds."""
    return int(time.time() * 1000)


class Scene:
    """What asking and working share."""

    def __init__(self, standing: Standing, pen: Pen, plan: Plan) -> None:
        self.standing = standing
        self.pen = pen
        self.plan = plan
        self.now = now_ms()
        memory = standing.memory if isinstance(standing.memory, Memory) else None
        self.resumed = memory is None
        self.base = memory.state if memory and memory.plan is plan and not standing.changed else _state(plan, standing)
        self.compaction = memory.compaction if memory else Compaction()
        self.cache = memory.cache if memory else Cache()
        self.summary: Summary | None = None
        self.usage: Usage | None = None
        self.arrived: tuple[Plain, ...] | None = None
        self.stage = Stage(
            plan,
            self.base,
            {
                "thread_id": standing.thread_id,
                "run_id": standing.run_id,
                "agent": plan.agent.id,
                "step": standing.step,
                "now": self.now,
                "tenant": standing.request.get("tenant"),
                "client": pen.dispatcher,
            },
        )

    @property
    def state(self) -> State:
        """As of now."""
        return self.stage.state

    def accept(self, command: Command) -> None:
        """Applies a command of the loop itself."""
        self.stage.accept(command)

    def entries(self) -> tuple[Entry, ...]:
        """The log as it stands with the summary that this turn brings."""
        log, summary = self.standing.log, self.summary
        return folded(log, summary.message, summary.covers) if summary else log

    async def close_step(self, messages: tuple[Plain, ...]) -> None:
        """Ends the step for everybody who follows it. Calls resumed between two steps have none to end."""
        if not self.pen.step_open:
            return
        await self.stage.gather(Phase.STEP_END, messages=messages)
        self._tell_state()
        self.pen.tell({"type": "step_end"})

    def leave(self) -> None:
        """Another agent goes on: the plugins of this one let go."""
        context = self.stage.context(Phase.STEP_END, messages=self.standing.messages)
        self.stage.accept(*(command for each in self.plan.plugins if (command := each.on_deactivate(context))))

    def _tell_state(self) -> None:
        shown, before = _shown(self.state), _shown(self.base)
        if shown != before:
            self.pen.tell({"type": "state_snapshot", "snapshot": shown})

    async def finish(self, termination: Termination, messages: tuple[Plain, ...], result: Any, **more: Any) -> Turn:
        """The run's last turn: the step is closed, then the run."""
        seen = (*self.standing.messages, *messages)
        await self.close_step(seen)
        await self.stage.gather(Phase.RUN_END, messages=seen)
        self.summary = self.summary or await self.compaction.outcome()
        return self.turn(messages=messages, then=Finish(termination, result), **more)

    def _new_grants(self) -> Plain:
        before = self.base[GRANTS]
        return {f"{PREFIX}{key}": grant for key, grant in self.state[GRANTS].items() if key not in before}

    def turn(self, **about: Any) -> Turn:
        """A turn with all that has come of this one."""
        state = self.state
        return Turn(
            arrived=self.arrived,
            summary=self.summary,
            usage=self.usage,
            config="" if self.standing.config == self.plan.version else self.plan.version,
            run_state=state.changed_since(self.base, Scope.RUN),
            thread_state={**state.changed_since(self.base, Scope.THREAD), **self._new_grants()},
            errands=tuple(self.stage.errands),
            effects=self.stage.afterwards(),
            memory=Memory(self.plan, state, self.compaction, self.cache),
            **about,
        )


def _state(plan: Plan, standing: Standing) -> State:
    """The state as Redis has it; what belongs to plugins this agent does not have stays where it is."""
    state = State().register((*OWN_KEYS, *plan.keys))
    stored: Mapping[str, Any] = {**standing.thread_state, **standing.run_state}
    values = {name: value for name, value in stored.items() if name in state.keys}
    grants = {name.removeprefix(PREFIX): value for name, value in stored.items() if name.startswith(PREFIX)}
    return State(state.keys, {**values, GRANTS.name: grants} if grants else values)


def _shown(state: State) -> dict[str, Any]:
    return {name: value for name, value in state.values.items() if name not in OWN}
