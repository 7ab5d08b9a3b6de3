"""What the model is asked: instructions, what was said, what plugins add, the tools of this step, made to fit."""

from dataclasses import dataclass

from postroom.mailbox.log import Entry
from postroom.worker.core.command import Phase
from postroom.worker.loop import Plain, Summary
from postroom.worker.model.base import Options, Request, ToolSpec
from postroom.worker.scene import Scene


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, the tools a model may use in answering it, and all messages before they were made to fit."""

    request: Request
    names: tuple[str, ...]
    seen: tuple[Plain, ...]
    entries: tuple[Entry, ...]


async def request_for(scene: Scene) -> Asked:
    """The request of this step."""
    stage, standing = scene.stage, scene.standing
    entries = folded(standing.log, scene.summary)
    said = (*(entry.message for entry in entries), *(standing.arrived if scene.arrived is None else scene.arrived))
    await stage.submit(Phase.BEFORE_INFERENCE, messages=said, tools=tuple(scene.plan.tools))
    tools = _offered(scene)
    names = tuple(spec.name for spec in tools)
    messages = _instructed(scene, said)
    for transform in scene.plan.transforms:
        messages = transform(messages, stage.context(Phase.BEFORE_INFERENCE, messages=said, tools=names))
    request = Request(
        _fitted(scene, messages, tools),
        tools,
        _options(scene),
        upstream=stage.override.get("upstream_model"),
        routing_key=standing.thread_id,
        tenant=standing.request.get("tenant") or "",
    )
    return Asked(request, names, messages, entries)


def folded(entries: tuple[Entry, ...], summary: Summary | None) -> tuple[Entry, ...]:
    """The log with a summary in the place of what it covers."""
    if summary is None:
        return entries
    first, last = summary.covers
    return (Entry(first, 0, "", 0, summary.message, covers=summary.covers), *(e for e in entries if e.seq > last))


def _offered(scene: Scene) -> tuple[ToolSpec, ...]:
    """The tools of this step: those asked for, less those ruled out."""
    only, excluded = scene.stage.only, scene.stage.excluded
    if only is None and not excluded:
        return scene.plan.specs
    return tuple(spec for spec in scene.plan.specs if (only is None or spec.name in only) and spec.name not in excluded)


def _instructed(scene: Scene, said: tuple[Plain, ...]) -> tuple[Plain, ...]:
    words = scene.plan.agent.instructions
    return ({"role": "system", "content": [{"type": "text", "text": words}]}, *said) if words else said


def _fitted(scene: Scene, messages: tuple[Plain, ...], tools: tuple[ToolSpec, ...]) -> tuple[Plain, ...]:
    return messages


def _options(scene: Scene) -> Options:
    return Options()


async def compacted_now(scene: Scene, asked: Asked) -> Asked:
    return asked


async def compact_if_due(scene: Scene, asked: Asked) -> None: ...
