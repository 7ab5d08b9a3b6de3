"""What a finished run has left behind, read so that it can be lived through again: who said what, and what came of it.

The log has every word of the run. The journal has what the log leaves out: data that tools returned, decisions and
tickets, and once more what the model said, which is how a log that was tampered with is found out.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroom.mailbox.contracts import Decision, DecisionAction, RunRecord, Ticket, Usage
from postroom.mailbox.log import Entry
from postroom.worker.core.calls import Outcome, failure
from postroom.worker.core.decisions import reason_in
from postroom.worker.model.base import CallPart, Part, ReasoningPart, Stop, StopReason, TextPart, UsagePart
from postroom.worker.tools.base import ToolContext

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Expiry:
    """Nobody decided in time."""

    call: str


@dataclass(slots=True)
class Step:
    """What the journal knows of one step."""

    text: str = ""
    calls: dict[str, Plain] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    answered: bool = False
    results: dict[str, Any] = field(default_factory=dict)
    tickets: dict[str, list[Ticket]] = field(default_factory=lambda: defaultdict(list))


class Recording:
    """One run. `entries` is what it wrote to the log, summaries apart; `journal` all its events, if none is trimmed."""

    def __init__(self, run: RunRecord, log: Iterable[Entry], journal: Sequence[Plain] | None) -> None:
        own = [each for each in log if each.run == run.run_id]
        self.run = run
        self.begins_at = own[0].seq if own else 0
        self.entries = [each for each in own if each.covers is None]
        self.whole = journal is not None
        self.steps: dict[int, Step] = defaultdict(Step)
        self.decisions: list[Decision | Expiry] = []
        self.result: Any = None
        self._resumed: dict[str, list[Any]] = defaultdict(list)
        for event in journal or ():
            if event["type"] == "tool_call_resumed":
                self._resumed[event["target_id"]].append(event.get("result"))
        for event in journal or ():
            self._hear(event)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _hear(self, event: Plain) -> None:
        step = self.steps[event.get("step", 0)]
        match event["type"]:
            case "stream_reset":
                step.text, step.calls = "", {}
            case "text_delta":
                step.text += event["delta"]
            case "tool_call_ready":
                step.calls[event["id"]] = {"name": event["name"], "arguments": event.get("arguments") or {}}
            case "tool_call_cancel":
                step.calls.pop(event["id"], None)
            case "inference_complete":
                step.answered, step.usage = True, Usage.model_validate(event.get("usage") or {})
            case "tool_call_done" if event["outcome"] == "suspended":
                step.tickets[event["id"]].append(Ticket.model_validate(event["result"]))
            case "tool_call_done":
                step.results[event["id"]] = event.get("result")
            case "tool_call_resumed":
                step.results[event["target_id"]] = event.get("result")
            case "decision_received":
                self.decisions.append(self._decision(event))
            case "ticket_expired":
                self.decisions.append(Expiry(event["call"]))
            case "run_finish":
                self.result = event.get("result")
            case _:
                pass

    def _decision(self, event: Plain) -> Decision:
        """The decision, as far as it can be told from what came of it; arguments that were edited are not needed."""
        call, action = event["call"], DecisionAction(event["action"])
        came = self._resumed[call].pop(0) if self._resumed[call] else None
        error = came.get("error") if isinstance(came, dict) else None
        reason = reason_in(action, error) if isinstance(error, str) else None
        return Decision(
            id=event["id"], target=call, action=action, by=event.get("by"), reason=reason, result=_data(came)
        )

    # -- the model ---------------------------------------------------------------------------------------------------

    def answers(self) -> list[tuple[int, list[Part]]]:
        """What the model said, step by step."""
        said = {each.step: each.message for each in self.entries if each.message["role"] == "assistant"}
        heard = {number for number, step in self.steps.items() if step.answered}
        return [(number, self._answer(said.get(number, {}), self.steps[number])) for number in sorted({*said, *heard})]

    def _answer(self, message: Plain, step: Step) -> list[Part]:
        parts: list[Part] = []
        for block in message.get("content", ()):
            if block["type"] == "thinking":
                parts.append(ReasoningPart(block["text"], block.get("signature")))
            elif block["type"] == "text":
                parts.append(TextPart(block["text"]))
        # Calls of a step that was stopped are not in the log.
        calls = message.get("tool_calls") or [{"id": name, **call} for name, call in step.calls.items()]
        for call in calls:
            arguments = call["arguments"]
            written = arguments if isinstance(arguments, str) else json.dumps(arguments)
            parts.append(CallPart(call["id"], call["name"], written))
        stop = StopReason.TOOL_USE if calls else StopReason.END_TURN
        return [*parts, UsagePart(step.usage), Stop(stop)]

    def contradictions(self) -> list[str]:
        """Where the log does not say what the journal says the model has said."""
        found = []
        for each in self.entries:
            step = self.steps.get(each.step)
            if each.message["role"] != "assistant" or not step or not step.answered:
                continue
            if _text(each.message) != step.text:
                found.append(f"step {each.step}: the log has {_text(each.message)!r}, the journal {step.text!r}")
            logged = {
                call["id"]: {"name": call["name"], "arguments": call["arguments"]}
                for call in each.message.get("tool_calls", ())
                if isinstance(call["arguments"], dict)
            }
            if logged and logged != step.calls:
                found.append(f"step {each.step}: the log has the calls {logged}, the journal {step.calls}")
        return found

    # -- the tools ---------------------------------------------------------------------------------------------------

    def outcome(self, context: ToolContext, handed_to: frozenset[str]) -> Outcome:
        """What became of a call; a tool that asked somebody itself does so again."""
        step = self.steps[context.step]
        asked = [each for each in step.tickets[context.call_id] if each.id.startswith("suspend_")]
        known = context.ticket.id if context.ticket and context.ticket.id.startswith("suspend_") else ""
        following = [each for each in asked if not known or len(each.id) > len(known) or each.id > known]
        if following:
            return Outcome("pending", message=following[0].message, ticket=following[0])
        for each in self.entries:
            if each.step == context.step and each.message.get("tool_call_id") == context.call_id:
                return self._outcome(each.message, step.results.get(context.call_id), handed_to)
        return failure("not_recorded", f"the recording has no result of call {context.call_id}")

    def _outcome(self, message: Plain, told: Any, handed_to: frozenset[str]) -> Outcome:
        text, metadata = _text(message), dict(message.get("metadata", {}))
        if metadata.pop("error", False):
            return Outcome("error", None, text, metadata)
        data = _data(told)
        # Who hands over always says so in words; data alone is shown as it is.
        to = data.get("agent", "") if isinstance(data, dict) and data.keys() == {"agent"} else ""
        to = to if to in handed_to and text != json.dumps(data, ensure_ascii=False) else ""
        ended = self.run.termination is not None and self.run.termination.kind == "behavior_requested"
        return Outcome("success", data, text, metadata, ends=ended and data == self.result, handoff=to)

    # -- the mail ----------------------------------------------------------------------------------------------------

    def mail(self) -> dict[tuple[str, int], list[Plain]]:
        """Messages that came while the run was under way, by the moment at which they have to come again.

        What stands before the answer of a step came while the step before was being finished; what stands behind it
        came while the model was answering.
        """
        found: dict[tuple[str, int], list[Plain]] = defaultdict(list)
        answered = {each.step for each in self.entries if each.message["role"] == "assistant"}
        calling = {each.step for each in self.entries if each.message.get("tool_calls")}
        spoken: set[int] = set()
        for place, each in enumerate(self.entries):
            if each.message["role"] == "assistant":
                spoken.add(each.step)
            given = place < len(self.run.request.get("messages", ()))
            if given or each.message["role"] != "user" or each.message.get("visibility") == "internal":
                continue
            if each.step in spoken or each.step not in answered:
                found["model", each.step].append(each.message)
            elif each.step == 1:
                found["start", 0].append(each.message)
            else:
                moment = "tool" if each.step - 1 in calling else "model"
                found[moment, each.step - 1].append(each.message)
        return found


def _text(message: Plain) -> str:
    return "".join(block["text"] for block in message.get("content", ()) if block["type"] == "text")


def _data(told: Any) -> Any:
    """What a tool returned, as the journal tells it."""
    return told["data"] if isinstance(told, dict) and told.keys() == {"data", "metadata"} else told
