"""Decisions: a person's answers to the tickets of a run, accepted all or none, the first for a ticket wins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from postroom.mailbox import codec
from postroom.mailbox.contracts import Decision
from postroom.mailbox.doorbell import Doorbell, doorbell
from postroom.mailbox.keys import check_token
from postroom.mailbox.ops import Op, counted_lists, on_thread


@dataclass(frozen=True, slots=True)
class Decided:
    """Proof that the decisions are in Redis (`accepted`, or `again`), and whether the run needs a worker now."""

    outcome: str
    run_status: str
    doorbell: Doorbell | None


def decide(
    thread_id: str,
    run_id: str,
    decisions: Sequence[Decision],
    limit: int = codec.MAX_BYTES,
    now: int | None = None,
) -> Op[Decided]:
    """Records decisions for suspended calls, each named by its call id or its ticket id."""
    check_token(run_id, "run id")
    rows = [
        [each.target, each.id, each.action.value, each.by or "", codec.encode(each.as_dict(), limit)]
        for each in decisions
    ]

    def parse(reply: Any) -> Decided:
        return Decided(reply[0].decode(), reply[1].decode(), doorbell(reply[2]))

    return on_thread("decide", thread_id, now, [run_id, *counted_lists(rows)], parse)
