"""Asks a plugin as the loop does, without a loop."""

import asyncio
import inspect
from typing import Any

from pydantic import BaseModel

from postroom.mailbox.contracts import Decision, DecisionAction
from postroom.mailbox.lifecycle import CallStatus
from postroom.worker.core.calls import Intercept, OpenCall, Outcome, strongest
from postroom.worker.core.command import Command, Phase, together
from postroom.worker.core.state import State
from postroom.worker.plugins.base import HookContext, Plugin, Registrar


def found(answer: Any) -> Any:
    """The answer of a hook, awaited if need be."""

    async def later() -> Any:
        return await answer

    return asyncio.run(later()) if inspect.isawaitable(answer) else answer


def call(name: str, arguments: dict[str, Any] | str | None = None, **known: Any) -> OpenCall:
    """A call that a model asked for."""
    return OpenCall("c", name, {} if arguments is None else arguments, 0, CallStatus.NEW, **known)


def decision(action: DecisionAction, **known: Any) -> Decision:
    """A person's answer."""
    return Decision(id="d", target="c", action=action, **known)


class Asked:
    """A plugin with its settings, and the state its answers lead to."""

    def __init__(self, plugin: Plugin, section: BaseModel | None = None) -> None:
        self.registrar = Registrar(plugin.id)
        plugin.register(self.registrar)
        self.state = State().register(self.registrar.keys)
        self.sections = {plugin.id: section} if section else {}

    def context(self, phase: Phase, **known: Any) -> HookContext:
        """What a hook sees."""
        usual: dict[str, Any] = {"thread_id": "t", "run_id": "r", "agent": "a", "step": 2, "now": 1000}
        return HookContext(phase, self.state, sections=self.sections, **usual | known)

    def gate(self, this: OpenCall, **known: Any) -> Intercept | None:
        """What becomes of a call."""
        context = self.context(Phase.TOOL_GATE, call=this, **known)
        answers = [found(gate(context)) for gate in self.registrar.gates]
        return strongest([each for each in answers if each is not None])

    def hooks(self, phase: Phase, **known: Any) -> Command:
        """What the hooks of a phase ask for; their updates are made."""
        context = self.context(phase, **known)
        answers = [found(hook(context)) for at, hook in self.registrar.hooks if at is phase]
        command = together(self.state, [each for each in answers if each])
        self.state = self.state.apply(command.updates)
        return command


def after(this: OpenCall, outcome: Outcome) -> dict[str, Any]:
    """What hooks after a call see."""
    return {"call": this, "outcome": outcome}
