"""How the verbs of A2A travel: a binding writes requests and reads refusals; what is asked and answered is the same."""

from dataclasses import dataclass
from typing import Any, Final, Protocol

from postroom.mailbox.backends import Card

Plain = dict[str, Any]
SEND, GET, LIST, SUBSCRIBE, CANCEL = "send", "get", "list", "subscribe", "cancel"
# What somebody answers who does not have what was asked for.
LACKING: Final = frozenset({404, 405, 501})


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, as it is sent."""

    method: str
    url: str
    body: Plain | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer that is none: the status HTTP has for it, and whether the agent does not offer what was asked for."""

    status: int
    lacks: bool


class Binding(Protocol):
    """One way to ask."""

    def ask(self, card: Card, verb: str, params: Plain) -> Ask:
        """The request for a verb."""
        ...

    def refused(self, status: int, body: Any) -> Refused | None:
        """The refusal in an answer, if it is one."""
        ...

    def result(self, body: Any) -> Plain:
        """What was answered."""
        ...
