"""What a run is at, folded from its events: what is being said, which calls are under way, and what is settled."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Plain = dict[str, Any]

WELL = frozenset({"natural_end", "behavior_requested"})
# Told by what else is shown; as lines of their own they would only be in the way.
QUIET = frozenset({"step_start", "step_end", "state_snapshot", "tool_call_delta", "inference_complete"})


@dataclass
class Progress:
    """The present, as opposed to what has scrolled by."""

    doing: str = "waiting for a worker"
    step: int = 0
    words: str = ""
    calls: dict[str, str] = field(default_factory=dict)

    def feed(self, event: Plain) -> list[str]:
        """Takes an event in; the lines that are settled by it and need not be shown as the present any more."""
        kind = event["type"]
        if kind == "text_delta":
            lines: list[str] = (self.words + event["delta"]).split("\n")
            self.words = lines.pop()
            return lines
        if kind in _MOVES:
            _MOVES[kind](self, event)
        if kind in _CALLS_BEGIN or kind in QUIET - {"step_end"}:
            return []
        spoken = [self.words] if self.words else []
        self.words = ""
        return spoken if kind in QUIET else [*spoken, f"· {self._line(event)}"]

    def _line(self, event: Plain) -> str:
        if event["type"] == "tool_call_done":
            name = self.calls.pop(event["id"], event["id"])
            return " ".join(filter(None, [name, event["outcome"], brief(event.get("result"))]))
        return words_of(event)


def words_of(event: Plain) -> str:
    """Any event in one line."""
    rest = " ".join(f"{name}={value}" for name, value in event.items() if name not in {"type", "step"} and value)
    return f"{event['type']} {rest}".rstrip()


def brief(value: Any, limit: int = 60) -> str:
    """A value's beginning."""
    text = "" if value is None else str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _take_up(progress: Progress, event: Plain) -> None:
    progress.doing = f"on {event.get('worker', 'a worker')}"


def _step(progress: Progress, event: Plain) -> None:
    progress.step = event.get("step", 0)
    progress.doing = f"step {progress.step}"


def _call(progress: Progress, event: Plain) -> None:
    arguments = brief(event.get("arguments"), 40)
    progress.calls[event["id"]] = f"{event['name']}({arguments})" if arguments else event["name"]


def _wait(progress: Progress, event: Plain) -> None:
    progress.doing, progress.calls = f"waiting for {event['reason']}", {}


def _requeue(progress: Progress, event: Plain) -> None:
    progress.doing, progress.calls = "waiting for a worker", {}


_CALLS_BEGIN = frozenset({"tool_call_start", "tool_call_ready"})
_MOVES: dict[str, Callable[[Progress, Plain], None]] = {
    "run_start": _take_up,
    "step_start": _step,
    "tool_call_start": _call,
    "tool_call_ready": _call,
    "run_waiting": _wait,
    "run_requeued": _requeue,
}
