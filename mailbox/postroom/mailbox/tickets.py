"""Questions to people and their answers."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue

from postroom.mailbox.contract import CallId, Contract, DecisionId, Milliseconds, ToolName


class ResumeMode(StrEnum):
    """What a decision does to the call it lets go on."""

    REPLAY_TOOL_CALL = "replay_tool_call"
    USE_DECISION_AS_TOOL_RESULT = "use_decision_as_tool_result"
    PASS_DECISION_TO_TOOL = "pass_decision_to_tool"  # noqa: S105 - the name of a mode, not a secret


class Risk(StrEnum):
    """How much a wrong yes would cost."""

    SAFE = "safe"
    SENSITIVE = "sensitive"
    DESTRUCTIVE = "destructive"


class Ticket(Contract):
    """A question to a person about one suspended call."""

    id: CallId
    call_id: CallId
    tool: ToolName
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)
    action: str = "approve"
    message: str = ""
    risk: Risk = Risk.SENSITIVE
    action_key: str | None = None
    resume_mode: ResumeMode = ResumeMode.REPLAY_TOOL_CALL
    response_schema: dict[str, JsonValue] | None = None
    expires_at: Milliseconds | None = None
    on_expiry: Literal["deny", "stop"] = "deny"


class DecisionAction(StrEnum):
    """What a person may answer."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    DENY = "deny"
    DENY_AND_STOP = "deny_and_stop"
    ANSWER = "answer"
    CANCEL = "cancel"


class Decision(Contract):
    """A person's answer to a ticket; the first one for a ticket counts, the same one twice is one."""

    id: DecisionId
    target: CallId
    action: DecisionAction
    arguments: dict[str, JsonValue] | None = None
    result: JsonValue = None
    reason: str | None = Field(default=None, max_length=4096)
    by: str | None = Field(default=None, max_length=256)
