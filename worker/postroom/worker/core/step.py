"""What a run does next: a pure function of where its calls stand, and nothing else."""

from dataclasses import dataclass

from postroom.mailbox.contracts import Termination, Ticket
from postroom.mailbox.lifecycle import CALL_DONE, CallStatus, TerminationKind
from postroom.worker.core.calls import OpenCall, Outcome


@dataclass(frozen=True, slots=True)
class CallModel:
    """No call is open: the model is asked."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """These calls are to be carried out now; with none left, what is there is brought to its end."""

    calls: tuple[OpenCall, ...]


@dataclass(frozen=True, slots=True)
class WaitForDecisions:
    """Every call that is left waits for somebody."""

    tickets: tuple[Ticket, ...]


Move = CallModel | RunTools | WaitForDecisions


def next_move(calls: tuple[OpenCall, ...]) -> Move:
    """The move for calls in their present state."""
    if not calls:
        return CallModel()
    ready = tuple(call for call in calls if is_ready(call))
    if ready or all(call.status in CALL_DONE for call in calls):
        return RunTools(ready)
    return WaitForDecisions(tuple(call.ticket for call in calls if call.ticket and call.status is CallStatus.SUSPENDED))


def is_ready(call: OpenCall) -> bool:
    """Whether a call can be carried out now: it has no outcome, and nobody has to be asked first."""
    if call.status in CALL_DONE:
        return False
    return call.status is not CallStatus.SUSPENDED or call.decision is not None


def segments(calls: tuple[OpenCall, ...], safe: frozenset[str], width: int) -> list[tuple[OpenCall, ...]]:
    """Calls in model order, cut into groups that run side by side. A resumed call and an unsafe one run alone."""
    found: list[list[OpenCall]] = []
    joins = False
    for call in calls:
        alone = width <= 1 or call.name not in safe or call.decision is not None
        if alone or not joins:
            found.append([call])
        else:
            found[-1].append(call)
        joins = not alone
    return [tuple(group) for group in found]


STATUS_OF = {"success": CallStatus.SUCCEEDED, "error": CallStatus.FAILED, "pending": CallStatus.SUSPENDED}
REJECTED, STOPS, DENIED = "rejected", "stops", "denied"


def ending(calls: tuple[OpenCall, ...]) -> tuple[Termination, object] | None:
    """How the run ends because of what became of its calls, if it does: a block, then a no, then a tool's wish."""
    outcomes = [call.outcome for call in calls if call.outcome]
    for outcome in outcomes:
        if outcome.metadata.get(REJECTED):
            return Termination(kind=TerminationKind.BLOCKED, code="blocked", message=outcome.message), None
    for outcome in outcomes:
        if outcome.metadata.get(STOPS):
            return Termination(kind=TerminationKind.STOPPED, code="denied", message=outcome.message), None
    if any(outcome.failed for outcome in outcomes):
        return None
    return next((_asked_for(outcome) for outcome in outcomes if outcome.ends), None)


def _asked_for(outcome: Outcome) -> tuple[Termination, object]:
    return Termination(kind=TerminationKind.BEHAVIOR_REQUESTED), outcome.data


def handoff(calls: tuple[OpenCall, ...]) -> str:
    """Who goes on, if a tool has handed over; the last one to say so is heard."""
    named = [call.outcome.handoff for call in calls if call.outcome and call.outcome.handoff]
    return named[-1] if named else ""
