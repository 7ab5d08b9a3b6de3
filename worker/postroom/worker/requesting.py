"""What the model is asked: instructions, what was said, what plugins add, the tools of this step, made to fit."""

from dataclasses import dataclass, replace
from typing import Any

from postroom.worker.core import compaction
from postroom.worker.core.command import Command, Phase
from postroom.worker.core.context import ContextPolicy, Fitted, fit
from postroom.worker.core.context_messages import due, emitted, placed
from postroom.worker.loop import Plain
from postroom.worker.model.base import Options, Request, ToolSpec
from postroom.worker.scene import Scene

# A request that its model found too long is made again for this part of what it was estimated at.
SHORTER = 0.7


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, the names of its tools, and all messages as they were before they were made to fit."""

    request: Request
    names: tuple[str, ...]
    seen: tuple[Plain, ...]
    tokens: int


async def request_for(scene: Scene) -> Asked:
    """The request of this step."""
    stage = scene.stage
    said = _said(scene)
    await stage.submit(Phase.BEFORE_INFERENCE, messages=said, tools=tuple(scene.plan.tools))
    return _asked(scene, said, scene.plan.context)


def _asked(scene: Scene, said: tuple[Plain, ...], policy: ContextPolicy) -> Asked:
    stage, standing, plan = scene.stage, scene.standing, scene.plan
    tools = _offered(scene)
    names = tuple(spec.name for spec in tools)
    waiting = due(stage.state)
    messages = placed(_instructed(scene, said), waiting)
    if plan.transforms:
        context = stage.context(Phase.BEFORE_INFERENCE, messages=said, tools=names)
        for transform in plan.transforms:
            messages = transform(messages, context)
    # Whatever plugins have added, the request keeps to the budget.
    fitted: Fitted = fit(messages, tools, policy, scene.cache)
    request = Request(
        fitted.messages,
        tools,
        _options(scene),
        upstream=_wanted(scene).get("upstream_model"),
        routing_key=standing.thread_id,
        tenant=standing.request.get("tenant") or "",
    )
    if waiting:
        stage.accept(Command((emitted(waiting),)))
    return Asked(request, names, messages, fitted.tokens)


def _said(scene: Scene) -> tuple[Plain, ...]:
    if scene.summary is None and scene.arrived is None:
        return scene.standing.messages
    arrived = scene.standing.arrived if scene.arrived is None else scene.arrived
    return (*(entry.message for entry in scene.entries()), *arrived)


def _offered(scene: Scene) -> tuple[ToolSpec, ...]:
    """The tools of this step: those asked for, less those ruled out."""
    only, excluded = scene.stage.only, scene.stage.excluded
    if only is None and not excluded:
        return scene.plan.specs
    return tuple(spec for spec in scene.plan.specs if (only is None or spec.name in only) and spec.name not in excluded)


def _instructed(scene: Scene, said: tuple[Plain, ...]) -> tuple[Plain, ...]:
    words = scene.plan.agent.instructions
    return ({"role": "system", "content": [{"type": "text", "text": words}]}, *said) if words else said


def _wanted(scene: Scene) -> Plain:
    """How to answer: what the run asked for counts more than the agent, what a hook wants for this step most."""
    overrides: Plain = scene.standing.request.get("overrides") or {}
    return {**overrides, **scene.stage.override} if scene.stage.override else overrides


def _options(scene: Scene) -> Options:
    wanted, plan = _wanted(scene), scene.plan
    if not wanted:
        return plan.options
    known: dict[str, Any] = {_NAMES[name]: value for name, value in wanted.items() if name in _NAMES}
    return replace(plan.options, **known)


_NAMES = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "reasoning_effort": "effort"}


async def compact_if_due(scene: Scene, asked: Asked) -> None:
    """Begins a summary beside the run when the thread has grown long enough."""
    plan = scene.plan
    if scene.compaction.busy or not compaction.due(asked.tokens, plan.context, plan.compaction):
        return
    found = compaction.plan(scene.entries(), plan.context, plan.compaction)
    if found:
        scene.compaction.start(plan.summariser, found, plan.compaction, scene.pen)


async def compacted_now(scene: Scene, asked: Asked) -> Asked:
    """The request made shorter after its model found it too long: with a summary if one can be had, and less of it."""
    plan = scene.plan
    if not scene.compaction.busy and plan.compaction.mode != "off":
        found = compaction.plan(scene.entries(), plan.context, plan.compaction)
        if found:
            scene.compaction.start(plan.summariser, found, plan.compaction, scene.pen)
    scene.summary = await scene.compaction.outcome() or scene.summary
    room = plan.context.reserved_tokens + max(int(asked.tokens * SHORTER), 1)
    smaller = plan.context.model_copy(update={"max_context_tokens": min(room, plan.context.max_context_tokens)})
    return _asked(scene, _said(scene), smaller)
