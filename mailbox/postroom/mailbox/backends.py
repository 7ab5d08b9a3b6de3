"""Backends: who carries a run out. Without one it is the loop of a worker; a remote agent is asked over A2A 1.0.

No secret is ever part of it: what a remote agent wants to be shown lies in the environment of the workers.
"""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationError

from postroom.mailbox.contract import Contract, invalid, web_address
from postroom.mailbox.errors import InvalidInput

# Where a thread remembers what it has asked of a remote agent; the agent's name follows.
TASK_PREFIX: Final = "runtime.remote."
# A definition that could name any variable could have any secret of a worker sent anywhere.
AUTH_PREFIX: Final = "A2A_"
_VARIABLE: Final = re.compile(rf"{AUTH_PREFIX}[A-Z0-9_]{{1,120}}")


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise InvalidInput(
            f"auth_env {name[:40]!r} must be the name of a variable of the workers' environment that begins with "
            f"{AUTH_PREFIX}, such as {AUTH_PREFIX}TOKEN; the secret itself belongs into that variable"
        )
    return name


RemoteUrl = Annotated[str, web_address("remote agent", f"name a variable {AUTH_PREFIX}… in auth_env instead")]
Words = Annotated[str, Field(max_length=4096)]
Seconds = Annotated[float, Field(gt=0, le=7 * 86400, allow_inf_nan=False)]


class Skill(Contract):
    """Something a remote agent says it can do."""

    id: Words
    name: Words = ""
    description: Words = ""


class Card(Contract):
    """What an agent card says that matters here: who it is, where it is asked and how, what it can do."""

    name: Words
    description: Words = ""
    url: RemoteUrl
    binding: Literal["HTTP+JSON", "JSONRPC"]
    tenant: Annotated[str, Field(max_length=256)] = ""
    streaming: bool = False
    skills: Annotated[tuple[Skill, ...], Field(max_length=256)] = ()


class A2A(Contract):
    """A remote agent: the address at which its card is found, and how patient to be with it.

    `auth_env` names the variable whose value is sent as `auth_header`, for `Authorization` as a bearer token. A run is
    given up after `timeout_s`; without a stream the task is looked at every `poll_s`. `card` is what was discovered;
    without one a worker fetches it when it needs it, and `any_host` lets it name another host than its own.
    """

    url: RemoteUrl
    auth_env: Annotated[str, AfterValidator(_variable)] | None = None
    auth_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")] = "Authorization"
    timeout_s: Seconds = 300.0
    poll_s: Seconds = 2.0
    any_host: bool = False
    card: Card | None = None

    def __init__(self, url: str = "", **more: Any) -> None:
        try:
            super().__init__(url=url, **more)  # type: ignore[call-arg]  # fields of our own, not of the base
        except ValidationError as error:
            raise invalid("A2A", error) from None


class Backend(Contract):
    """Which backend serves an agent, with its own settings."""

    kind: Literal["a2a"]
    version: Literal[1] = 1
    config: A2A
