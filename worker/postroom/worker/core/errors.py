"""What the core refuses.

LoopError
├── KeyTaken                  two state keys of one name
├── UnknownKey                an update to a key nobody registered
├── RevisionConflict          an update made for an older state
├── MergeConflict             two at the same time on one exclusive key
├── UnknownAction             an action or effect nobody handles
├── ActionsWithoutEnd         actions that go on scheduling actions
├── WindowTooSmall            not even what must stay fits the model's window
├── EmptyReply                a model that says nothing, however often it is asked
├── OutputInvalid             a final answer of the wrong shape, however often it is repaired
├── AgentMissing              a handoff to an agent nobody knows
├── AgentRefused              a stored definition this worker cannot serve; another one may
├── CapabilityMismatch        a run that asks for what its backend does not have
├── NothingToSay              a run without a word for the remote agent that serves it
├── RemoteUnavailable         a remote agent that does not answer for now
└── RemoteRefused             a remote agent that refuses what it is asked
"""

from postroom.mailbox.errors import PostroomError


class LoopError(PostroomError):
    """Base of all: a plugin, a tool or an agent definition did something that cannot be carried out."""

    code = "loop_error"


class KeyTaken(LoopError):
    """Two state keys of one name."""

    code = "state_key_taken"


class UnknownKey(LoopError):
    """An update to a key nobody registered."""

    code = "state_key_unknown"


class RevisionConflict(LoopError):
    """An update made for an older state."""

    code = "state_revision_conflict"


class MergeConflict(LoopError):
    """Two at the same time on one exclusive key."""

    code = "state_merge_conflict"


class UnknownAction(LoopError):
    """An action or effect nobody handles."""

    code = "action_unknown"


class ActionsWithoutEnd(LoopError):
    """Actions that go on scheduling actions."""

    code = "actions_without_end"


class WindowTooSmall(LoopError):
    """Not even what must stay fits the model's window."""

    code = "context_window_too_small"


class EmptyReply(LoopError):
    """A model that says nothing, however often it is asked."""

    code = "empty_response"


class OutputInvalid(LoopError):
    """A final answer of the wrong shape, however often it is repaired."""

    code = "output_invalid"


class AgentMissing(LoopError):
    """A handoff to an agent nobody knows."""

    code = "agent_not_found"


class AgentRefused(LoopError):
    """A stored definition this worker cannot serve; another one may."""

    code = "agent_refused"
    retryable = True


class CapabilityMismatch(LoopError):
    """A run that asks for what its backend does not have."""

    code = "capability_mismatch"


class NothingToSay(LoopError):
    """A run without a word for the remote agent that serves it."""

    code = "nothing_to_say"


class RemoteUnavailable(LoopError):
    """A remote agent that does not answer for now."""

    code = "remote_unavailable"
    retryable = True


class RemoteRefused(LoopError):
    """A remote agent that refuses what it is asked."""

    code = "remote_refused"
