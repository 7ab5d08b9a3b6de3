"""Wake-ups for the one worker that holds a run. The fact is in a key already: a lost wake-up costs time, not truth."""

from dataclasses import dataclass
from enum import StrEnum


class Word(StrEnum):
    """Why a worker is woken."""

    CANCEL = "cancel"
    DECISION = "decision"
    MAIL = "mail"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class WakeUp:
    """Something has arrived for a run."""

    word: Word
    run_id: str


def parse(payload: bytes) -> WakeUp | None:
    """The wake-up a message on a worker's channel stands for; what a newer version says is ignored."""
    word, _, run_id = payload.decode("utf-8", "replace").partition(" ")
    return WakeUp(Word(word), run_id) if word in set(Word) and run_id else None
