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
from postroom.mailbox.lifecycle import WaitingReason
from postroom.worker.loop import Continue, Finish, Standing, Turn, Wait

Reply = str | dict[str, Any]


class ScriptedFailure(Exception):
    """The script said so."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """Says the n-th reply in step n; without a script it repeats what it was told."""

    script: Sequence[Reply] = ()

    async def step(self, standing: Standing) -> Turn:
        """The next reply of the script."""
        script = standing.request.get("metadata", {}).get("script") or self.script or [_echo(standing)]
        answers = tuple(_answer(decision) for decision in standing.decisions)
        if standing.step > len(script):
            return Turn(answers, then=Finish(), settles_calls=bool(answers))
        reply = script[standing.step - 1]
        given: dict[str, Any] = {"say": reply} if isinstance(reply, str) else dict(reply)
        if "sleep" in given:
            await asyncio.sleep(given["sleep"])
        if "fail" in given:
            raise ScriptedFailure(given["fail"])
        said = _said(given, standing.step)
        events = ({"type": "text_delta", "delta": given["say"]},) if given.get("say") else ()
        following = _following(given, standing.step, last=standing.step == len(script))
        return Turn(answers + said, events, following, settles_calls=bool(answers))


def _said(given: dict[str, Any], step: int) -> tuple[dict[str, Any], ...]:
    if "ask" in given:
        return ({"role": "assistant", "tool_calls": [{"id": f"call-{step}", "name": "ask", "arguments": {}}]},)
    return (message("assistant", given["say"]).as_dict(),) if given.get("say") else ()


def _following(given: dict[str, Any], step: int, *, last: bool) -> Continue | Wait | Finish:
    if "ask" in given:
        ticket = Ticket(id=f"ticket-{step}", call_id=f"call-{step}", tool="ask", message=given["ask"])
        return Wait(WaitingReason.APPROVAL, tickets=(ticket,))
    if "wait" in given:
        wake = int(time() * 1000) + given["for_ms"] if "for_ms" in given else None
        return Wait(WaitingReason(given["wait"]), wake)
    return Finish(result={"response": given.get("say", "")}) if last else Continue()


def _answer(decision: dict[str, Any]) -> dict[str, Any]:
    words = f"{decision['action']}: {decision.get('reason') or 'no reason given'}"
    return message("tool", words, tool_call_id=decision["call_id"]).as_dict()


def _echo(standing: Standing) -> str:
    said = [block["text"] for each in standing.messages for block in each.get("content", ()) if block["type"] == "text"]
    return said[-1] if said else ""
