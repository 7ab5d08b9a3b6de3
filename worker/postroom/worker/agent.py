"""What a user writes about one agent, in code or as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from postroom.mailbox.backends import A2A
from postroom.mailbox.contract import invalid, parse
from postroom.mailbox.specs import REMOTE_FIELDS, AgentSpec, Behaviour
from postroom.worker.core.compaction import CompactionPolicy
from postroom.worker.core.context import ContextPolicy
from postroom.worker.core.output import Shape
from postroom.worker.core.stop import StopPolicy
from postroom.worker.loop import Loop
from postroom.worker.model.base import Model
from postroom.worker.plugins.base import Plugin
from postroom.worker.tools.base import Tool


@dataclass(frozen=True)
class Agent:
    """A named way to serve a run: a model with instructions and tools, a remote `backend`, or a `loop` of your own.

    `model`, `tools` and `plugins` may be given themselves or by the name the app knows them under; `allow` and
    `exclude` are patterns over tool names: only `*` is special. `sections` hold the settings of plugins.
    """

    id: str
    loop: Loop | None = None
    model: Model | str | None = None
    instructions: str = ""
    description: str = ""
    tools: Sequence[Tool | str] = ()
    allow: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    delegates: Sequence[str] = ()
    max_rounds: int = 16
    stop: Sequence[StopPolicy] = ()
    context: ContextPolicy | None = None
    compaction: CompactionPolicy | None = None
    effort: str | int | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    plugins: Sequence[Plugin | str] = ()
    active_hooks: Sequence[str] = ()
    sections: Mapping[str, Mapping[str, Any] | BaseModel] = field(default_factory=dict)
    output: Shape | None = None
    behaviour: Behaviour = Behaviour()
    backend: A2A | None = None

    def out_of_place(self) -> list[str]:
        """What is said of a remote agent although it is not for us to say."""
        usual = {each.name: each.default for each in fields(self)} | {"sections": {}}
        return [name for name, value in usual.items() if name not in REMOTE_FIELDS and getattr(self, name) != value]


_STOPS: TypeAdapter[tuple[StopPolicy, ...]] = TypeAdapter(tuple[StopPolicy, ...])


def agent_of(spec: AgentSpec) -> Agent:
    """The agent that a stored definition describes; what only a worker can check is checked here."""
    try:
        stop = _STOPS.validate_python([each.model_dump() for each in spec.stop])
    except ValidationError as error:
        raise invalid(f"agent {spec.id!r}: stop", error) from None
    plain = {name: getattr(spec, name) for name in _AS_THEY_ARE}
    return Agent(
        **plain,
        backend=spec.backend.config if spec.backend else None,
        stop=stop,
        context=None if spec.context is None else parse(ContextPolicy, spec.context),
        compaction=None if spec.compaction is None else parse(CompactionPolicy, spec.compaction),
    )


_AS_THEY_ARE = tuple(AgentSpec.model_fields.keys() - {"stop", "context", "compaction", "backend"})
