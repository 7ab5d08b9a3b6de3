"""The hooks of a run, phase by phase: what they are shown, and what becomes of what they return."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from postroom.mailbox.contracts import Termination
from postroom.mailbox.errands import Errand
from postroom.worker.core import actions
from postroom.worker.core.calls import Intercept, OpenCall, strongest
from postroom.worker.core.command import NOTHING, Action, Command, Effect, Phase, compatible, together
from postroom.worker.core.context_messages import ContextMessage, add
from postroom.worker.core.errors import ActionsWithoutEnd, LoopError, UnknownAction
from postroom.worker.core.state import State, StateKey
from postroom.worker.loop import Plain
from postroom.worker.plan import Plan
from postroom.worker.plugins.base import Hook, HookContext

log = logging.getLogger(__name__)

MOST_ROUNDS = 16

# Actions scheduled for a phase that has not come yet: they survive a change of worker.
SCHEDULED: StateKey[list[list[Any]], list[list[Any]]] = StateKey("runtime.scheduled", [])
FAILED: StateKey[list[list[Any]], list[Any]] = StateKey(
    "runtime.failed_actions", [], lambda old, new: [*old, new][-64:]
)
KEYS: tuple[StateKey[Any, Any], ...] = (SCHEDULED, FAILED)


async def settled(value: Any) -> Any:
    """What a function returned, whether or not it has to be awaited."""
    return await value if inspect.isawaitable(value) else value


class Stage:
    """One turn's hooks. `state` is as of now, `stop` is set once a hook or tool wants the run to end."""

    def __init__(self, plan: Plan, state: State, about: Plain) -> None:
        self.plan = plan
        self.state = state
        self.about = about
        self.stop: Termination | None = None
        self.effects: list[Effect] = []
        self.errands: list[Errand] = []
        self.excluded: set[str] = set()
        self.only: set[str] | None = None
        self.override: Plain = {}

    def context(self, phase: Phase, **about: Any) -> HookContext:
        """What hooks of a phase get to see."""
        if call := about.get("call"):
            about["tool"] = self.plan.tools.get(call.name)
        known = {"state": self.state, "sections": self.plan.sections, **self.about, **about}
        return HookContext(phase=phase, **known)

    async def gather(self, phase: Phase, **about: Any) -> None:
        """Asks all hooks of a phase at once. Those that clash with an earlier one are asked again, one by one."""
        hooks = self.plan.hooks.get(phase, ())
        if not hooks and SCHEDULED.name not in self.state.values:
            return
        if hooks:
            commands = await self._ask(hooks, self.context(phase, **about))
            kept, left = compatible(self.state, commands)
            self.accept(kept)
            for place in left:
                self.accept(*await self._ask((hooks[place],), self.context(phase, **about)))
        await self.act(phase, **about)

    async def collect(self, phase: Phase, **about: Any) -> Command:
        """What all hooks of a phase want, as one command; here a clash is a mistake of the plugins."""
        hooks = self.plan.hooks.get(phase, ())
        return together(self.state, await self._ask(hooks, self.context(phase, **about))) if hooks else NOTHING

    async def submit(self, phase: Phase, **about: Any) -> None:
        """Collects, accepts, and handles what that scheduled."""
        if phase not in self.plan.hooks and SCHEDULED.name not in self.state.values:
            return
        self.accept(await self.collect(phase, **about))
        await self.act(phase, **about)

    async def _ask(self, hooks: tuple[Hook, ...], context: HookContext) -> list[Command]:
        answers = [hook(context) for hook in hooks]
        if any(inspect.isawaitable(answer) for answer in answers):
            answers = list(await asyncio.gather(*(settled(answer) for answer in answers)))
        return [answer or NOTHING for answer in answers]  # type: ignore[misc]

    def accept(self, *commands: Command) -> None:
        """Applies commands; one that asks for what nobody handles is refused as a whole."""
        for command in commands:
            if not command:
                continue
            self._check(command)
            self.state = self.state.apply(command.updates)
            self.effects += command.effects
            self.errands += command.errands
            self.stop = self.stop or command.stop
            if command.actions:
                waiting = [*self.state[SCHEDULED], *([a.phase.value, a.key, a.payload] for a in command.actions)]
                self.state = self.state.apply((SCHEDULED.update(waiting),))

    def _check(self, command: Command) -> None:
        for action in command.actions:
            if action.key not in self.plan.actions and action.key not in _BUILT_IN:
                raise UnknownAction(f"nobody handles the action {action.key!r}; a plugin must register it")
        for effect in command.effects:
            if effect.key not in self.plan.effects:
                raise UnknownAction(f"nobody handles the effect {effect.key!r}; a plugin must register it")

    async def act(self, phase: Phase, **about: Any) -> None:
        """Handles the actions scheduled for a phase, and those they schedule for the same phase."""
        for _ in range(MOST_ROUNDS):
            waiting = self.state[SCHEDULED]
            mine = [entry for entry in waiting if entry[0] == phase]
            if not mine:
                return
            self.state = self.state.apply((SCHEDULED.update([entry for entry in waiting if entry[0] != phase]),))
            for _, key, payload in mine:
                await self._handle(Action(phase, key, payload), **about)
        raise ActionsWithoutEnd(f"actions of the phase {phase} were still scheduling others after {MOST_ROUNDS} rounds")

    async def _handle(self, action: Action, **about: Any) -> None:
        if built_in := _BUILT_IN.get(action.key):
            built_in(self, action.payload)
            return
        handler = self.plan.actions[action.key]
        try:
            self.accept(await settled(handler(self.context(action.phase, **about), action.payload)) or NOTHING)
        except LoopError:
            raise
        except Exception as error:
            log.exception("the action %s failed", action.key)
            self.state = self.state.apply((FAILED.update([action.key, action.payload, str(error)]),))

    async def gate(self, call: OpenCall, **about: Any) -> Intercept | None:
        """What the gates say to a call; a block beats a suspension beats a result."""
        if not self.plan.gates:
            return None
        context = self.context(Phase.TOOL_GATE, call=call, **about)
        said = [await settled(gate(context)) for gate in self.plan.gates]
        intercepts = [each for each in said if each is not None]
        if len(intercepts) > 1:
            log.info("%d gates intercept call %s; the strongest counts", len(intercepts), call.id)
        return strongest(intercepts)

    def afterwards(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        """The effects, ready to be carried out after the commit."""
        return tuple(self._later(effect) for effect in self.effects)

    def _later(self, effect: Effect) -> Callable[[], Awaitable[None]]:
        handler = self.plan.effects[effect.key]

        async def carry_out() -> None:
            await settled(handler(effect.payload))

        return carry_out

    # -- actions of the loop itself: they count for one step ---------------------------------------------------------

    def _exclude(self, names: str | list[str]) -> None:
        self.excluded |= {names} if isinstance(names, str) else set(names)

    def _include_only(self, names: list[str]) -> None:
        self.only = (self.only or set()) | set(names)

    def _override(self, options: Plain) -> None:
        self.override |= options

    def _add_context_message(self, message: Plain) -> None:
        wanted = ContextMessage.model_validate(message)
        self.state = self.state.apply((add(wanted, self.about["step"]),))


_BUILT_IN: dict[str, Callable[[Stage, Any], None]] = {
    actions.EXCLUDE_TOOL: Stage._exclude,
    actions.INCLUDE_ONLY_TOOLS: Stage._include_only,
    actions.SET_INFERENCE_OVERRIDE: Stage._override,
    actions.ADD_CONTEXT_MESSAGE: Stage._add_context_message,
}
