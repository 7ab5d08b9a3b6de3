"""What a user writes about one agent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from postroom.worker.core.compaction import CompactionPolicy
from postroom.worker.core.context import ContextPolicy
from postroom.worker.core.output import Shape
from postroom.worker.core.stop import StopPolicy
from postroom.worker.loop import Loop
from postroom.worker.model.base import Model
from postroom.worker.plugins.base import Plugin
from postroom.worker.tools.base import Tool


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How patient a loop is; the defaults suit most agents.

    `parallel` calls of a step run side by side; 1 means one after the other. `continuations` is how often an answer
    that was cut off is continued, `nudges` how often an empty one is asked for again, `repairs` how often an answer of
    the wrong shape is, `failures` how often in a row one tool may fail before the run stops.
    """

    parallel: int = 4
    continuations: int = 2
    nudges: int = 2
    repairs: int = 2
    failures: int = 3
    output_limit: int = 20_000


@dataclass(frozen=True)
class Agent:
    """A named way to serve a run: a model with instructions and tools, or a `loop` of your own.

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
