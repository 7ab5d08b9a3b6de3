"""What a backend can do, and what a run asks of it that it cannot: found out before anything is carried out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from postroom.worker.core.errors import CapabilityMismatch

Plain = dict[str, Any]
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Profile:
    """What a backend can do, dimension by dimension; of one nobody knows nothing is expected."""

    cancellation: str = NONE
    continuation: str = NONE
    decisions: str = NONE
    overrides: str = NONE
    frontend_tools: str = NONE
    persistence: str = "ephemeral"
    waits: str = NONE
    transcript: str = "single_prompt"
    output: str = "text"


LOCAL: Final = Profile(
    cancellation="cooperative_token",
    continuation="in_process_state",
    decisions="live_and_durable",
    overrides="model_and_params",
    frontend_tools="executable",
    persistence="checkpoint",
    waits="both",
    transcript="full",
    output="text_and_artifacts",
)
# Its tools and their approvals are its own business; what it asks us to decide is a ticket of our own.
REMOTE: Final = Profile(
    cancellation="remote_abort",
    continuation="remote_state",
    persistence="cross_session",
    waits="both",
    transcript="incremental_with_remote_state",
    output="text_and_artifacts",
)

# What a request may ask for, and how one sees that it does.
_ASKED: Final[dict[str, Callable[[Plain], Any]]] = {
    "decisions": lambda request: request.get("decisions"),
    "overrides": lambda request: request.get("overrides"),
    "frontend_tools": lambda request: request.get("frontend_tools"),
}


def lacking(profile: Profile, request: Plain) -> list[str]:
    """What the request asks for and the backend does not have."""
    return [name for name, asks in _ASKED.items() if asks(request) and getattr(profile, name) == NONE]


def require(profile: Profile, request: Plain) -> None:
    """Refuses a request that the backend cannot serve as it was meant."""
    if missing := lacking(profile, request):
        raise CapabilityMismatch(f"backend does not support: {', '.join(missing)}")
