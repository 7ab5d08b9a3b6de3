"""A loop that follows a script: what tests, demos and benchmarks run instead of a model.

A script is a list of replies, one per step. A reply is the words to say, or a map: `say`, `sleep` seconds first, `wait`
for a reason (with `for_ms`, until then), `ask` a person to approve, `fail` with an error. The last reply ends the run.
A request may bring its own script as `metadata.script`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from postroom.mailbox.contracts import Ticket, message
from postroom.mailbox.lifecycle import CallStatus, WaitingReason
from postroom.worker.core.calls import OpenCall
from postroom.worker.loop import Continue, Finish, Pen, Standing, Turn, Wait

Reply = str | dict[str, Any]


class ScriptedFailure(Exception):
    """The script said so."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """Says the n-th reply in step n; without a script it repeats what it was told."""

    script: Sequence[Reply] = ()

    async def step(self, standing: Standing, pen: Pen) -> Turn:
        """The next reply of the script, or the answers to what was asked before."""
        if standing.calls:
            return Turn(tuple(_answer(call) for call in standing.calls))
        script = standing.request.get("metadata", {}).get("script") or self.script or [_echo(standing)]
        if standing.step > len(script):
            return Turn(then=Finish())
        reply = script[standing.step - 1]
        given: dict[str, Any] = {"say": reply} if isinstance(reply, str) else dict(reply)
        if "sleep" in given:
            await asyncio.sleep(given["sleep"])
        if "fail" in given:
            raise ScriptedFailure(given["fail"])
        events: list[dict[str, Any]] = [] if standing.step_open else [{"type": "step_start"}]
        if given.get("say"):
            events.append({"type": "text_delta", "delta": given["say"]})
        for event in (*events, {"type": "step_end"}):
            pen.tell(event)
        if "ask" in given:
            return _question(given["ask"], standing.step)
        said = ({"role": "assistant", "content": [{"type": "text", "text": given["say"]}]},) if given.get("say") else ()
        return Turn(said, then=_following(given, last=standing.step == len(script)))


def _question(words: str, step: int) -> Turn:
    ticket = Ticket(id=f"ticket-{step}", call_id=f"call-{step}", tool="ask", message=words)
    call = OpenCall(ticket.call_id, "ask", {}, 0, CallStatus.SUSPENDED, ticket)
    asked = {"role": "assistant", "tool_calls": [{"id": call.id, "name": "ask", "arguments": {}}]}
    return Turn((asked,), calls=(call,), then=Wait(WaitingReason.APPROVAL, tickets=(ticket,)))


def _following(given: dict[str, Any], *, last: bool) -> Continue | Wait | Finish:
    if "wait" in given:
        wake = int(time() * 1000) + given["for_ms"] if "for_ms" in given else None
        return Wait(WaitingReason(given["wait"]), wake)
    return Finish(result={"response": given.get("say", "")}) if last else Continue()


def _answer(call: OpenCall) -> dict[str, Any]:
    decision = call.decision
    words = f"{decision.action}: {decision.reason or 'no reason given'}" if decision else "nobody answered"
    return message("tool", words, tool_call_id=call.id).as_dict()


def _echo(standing: Standing) -> str:
    said = [block["text"] for each in standing.messages for block in each.get("content", ()) if block["type"] == "text"]
    return said[-1] if said else ""
