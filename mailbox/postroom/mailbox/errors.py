"""Every error Postroom raises on purpose: one tree, a stable code each, sorted by who must react.

PostroomError
├── InvalidInput              the caller gave something we refuse; nothing was written
│   └── BodyTooLarge
├── NotFound
│   ├── RunNotFound
│   ├── ThreadNotFound
│   ├── AgentNotStored
│   └── TicketNotFound
├── EventsTrimmed             the journal no longer holds the events asked for
├── Refused                   well formed, but the state of what it is about forbids it
│   ├── ThreadBusy
│   ├── RunDone
│   ├── AlreadyDecided
│   ├── TicketExpired
│   ├── NothingToRemember
│   ├── MailboxFull
│   ├── LaneFull
│   ├── VersionConflict
│   └── MoveRefused
├── WaitTimeout               what was waited for has not happened in time
├── NothingToDo               a doorbell that needs no answer: held, not the head, or not due
├── FenceLost                 this activation is over; stop and commit nothing more
├── CommitGap                 a commit before this one is missing
├── BodyUnreadable            stored bytes that this version cannot decode
└── ServerProblem             Redis is missing, unreachable or set up wrongly
    ├── NoServer
    ├── ServerUnreachable
    ├── ServerTooOld
    ├── ServerEvicts
    ├── ServerFull
    └── ServerReadOnly
"""

from typing import ClassVar


class PostroomError(Exception):
    """Base of all; `code` never changes once released, `retryable` says whether the same call may succeed later."""

    code: ClassVar[str] = "postroom_error"
    retryable: ClassVar[bool] = False

    @property
    def message(self) -> str:
        """The one clear line: what happened, the id, what to do."""
        return str(self)

    def as_dict(self) -> dict[str, str | bool]:
        """All that crosses a process boundary."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable}


class InvalidInput(PostroomError):
    """The caller gave something we refuse; nothing was written."""

    code = "invalid_input"


class BodyTooLarge(InvalidInput):
    """A body exceeds the size limit."""

    code = "body_too_large"


class NotFound(PostroomError):
    """The id names nothing we know."""

    code = "not_found"


class RunNotFound(NotFound):
    """No such run, or it has expired."""

    code = "run_not_found"


class ThreadNotFound(NotFound):
    """No such thread, or it has expired."""

    code = "thread_not_found"


class AgentNotStored(NotFound):
    """No such agent is stored, or not in that version."""

    code = "agent_not_stored"


class TicketNotFound(NotFound):
    """The decision's target is neither a suspended call nor an open ticket of the run."""

    code = "ticket_not_found"


class EventsTrimmed(PostroomError):
    """The journal no longer holds the events asked for."""

    code = "events_trimmed"


class Refused(PostroomError):
    """Well formed, but the state of the thread forbids it."""

    code = "refused"


class ThreadBusy(Refused):
    """The thread has a run and the submission asked to be rejected in that case."""

    code = "thread_busy"


class RunDone(Refused):
    """The run has ended; what was asked needs a run that has not."""

    code = "run_done"


class AlreadyDecided(Refused):
    """Another decision for this ticket came first."""

    code = "already_decided"


class TicketExpired(Refused):
    """The ticket's time to decide is over."""

    code = "ticket_expired"


class VersionConflict(Refused):
    """Somebody else has changed the stored agent meanwhile."""

    code = "version_conflict"


class NothingToRemember(Refused):
    """A call without an action key cannot be allowed for good."""

    code = "nothing_to_remember"


class MailboxFull(Refused):
    """The thread has as much unread mail as it may hold."""

    code = "mailbox_full"
    retryable = True


class LaneFull(Refused):
    """The thread has as many queued runs as it may hold."""

    code = "lane_full"
    retryable = True


class MoveRefused(Refused):
    """The lifecycle tables have no such transition."""

    code = "move_refused"


class WaitTimeout(PostroomError):
    """What was waited for has not happened in time."""

    code = "wait_timeout"
    retryable = True


class NothingToDo(PostroomError):
    """A doorbell that needs no answer: the thread is held, the run is not its head, or it is not due."""

    code = "nothing_to_do"


class FenceLost(PostroomError):
    """This activation is over: another worker owns the thread, or the run has ended."""

    code = "fence_lost"


class CommitGap(PostroomError):
    """A commit arrived before its predecessor."""

    code = "commit_gap"


class BodyUnreadable(PostroomError):
    """Stored bytes that this version cannot decode."""

    code = "body_unreadable"


class ServerProblem(PostroomError):
    """Redis is missing, unreachable or set up wrongly."""

    code = "server_problem"


class NoServer(ServerProblem):
    """No URL was given and no embedded server can be started."""

    code = "no_server"


class ServerUnreachable(ServerProblem):
    """The server did not answer."""

    code = "server_unreachable"
    retryable = True


class ServerTooOld(ServerProblem):
    """The server lacks what the scripts need."""

    code = "server_too_old"


class ServerEvicts(ServerProblem):
    """The server may drop keys when memory is short, so nothing on it is durable."""

    code = "server_evicts"


class ServerFull(ServerProblem):
    """The server has used up the memory it may have and refuses writes."""

    code = "server_full"
    retryable = True


class ServerReadOnly(ServerProblem):
    """The server is a replica and refuses writes."""

    code = "server_read_only"


# The first word of a script's error reply names the class; the rest is the message.
BY_REPLY: dict[str, type[PostroomError]] = {
    "NORUN": RunNotFound,
    "NOTHREAD": ThreadNotFound,
    "NOTICKET": TicketNotFound,
    "THREADBUSY": ThreadBusy,
    "RUNDONE": RunDone,
    "DECIDED": AlreadyDecided,
    "EXPIRED": TicketExpired,
    "NOKEY": NothingToRemember,
    "MAILFULL": MailboxFull,
    "LANEFULL": LaneFull,
    "AGENTVERSION": VersionConflict,
    "BADMOVE": MoveRefused,
    "NOTHING": NothingToDo,
    "FENCED": FenceLost,
    "COMMITGAP": CommitGap,
    "TOOMANY": InvalidInput,
    "TAKEN": InvalidInput,
}


def from_reply(text: str) -> PostroomError | None:
    """The error a script's reply stands for, or None when the server itself complains."""
    word, _, message = text.partition(" ")
    kind = BY_REPLY.get(word)
    return kind(message) if kind else None
