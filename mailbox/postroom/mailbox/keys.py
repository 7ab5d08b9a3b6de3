"""Every Redis key and channel name, and the rule for ids that may stand in one."""

import re
from typing import Final

from postroom.mailbox.errors import InvalidInput

WATCH: Final = "postroom:watch"
THREADS: Final = "postroom:threads"
RUNS: Final = "postroom:runs"
DEAD: Final = "postroom:dead"
# Libraries of functions that this server was taught, by when.
LIBRARIES: Final = "postroom:libraries"
OWED: Final = "postroom:deliveries"
UNDELIVERED: Final = "postroom:undelivered"
STRANDED: Final = "postroom:stranded"
# Stored agents: the present version of each, the counter that numbers versions, the channel that tells of a change.
AGENTS: Final = "postroom:agents"
AGENTS_VERSION: Final = "postroom:agents:version"
AGENTS_CHANGED: Final = "postroom:agents:changed"

MAX_ID_BYTES: Final = 256
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/-]{0,127}")
# Braces delimit the thread in a key; control characters, line separators and halves of surrogate pairs are never meant.
_ID: Final = re.compile("[^{}\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def check_id(value: str, what: str) -> str:
    """A free-form id (thread, idempotency key, mail, call): any words, but nothing that could name another key."""
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{what} is empty; give a text of 1 to {MAX_ID_BYTES} bytes")
    # No character takes more than four bytes.
    if len(value) > MAX_ID_BYTES // 4 and len(value.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES:
        raise InvalidInput(f"{what} {value[:32]!r}… is longer than {MAX_ID_BYTES} bytes")
    if not _ID.fullmatch(value):
        raise InvalidInput(f"{what} {value[:64]!r} holds a brace or a control character; leave those out")
    return value


def check_token(value: str, what: str) -> str:
    """An id that also stands in an RQ job id or a lock value: letters, digits, `_` and `-`."""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise InvalidInput(f"{what} {value[:70]!r} must be 1 to 64 letters, digits, '_' or '-'")
    return value


def check_name(value: str, what: str) -> str:
    """A name somebody chose for an agent, tool, queue or worker: no spaces, at most 128 characters."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidInput(f"{what} {value[:130]!r} must be 1 to 128 letters, digits or any of _ . : @ / -")
    return value


def thread(thread_id: str) -> str:
    """The thread's hash; every other key of the thread begins like it, so all of them share one slot."""
    return f"postroom:{{{thread_id}}}:thread"


def lock(thread_id: str) -> str:
    """Who holds the thread: `run worker fence lease_until`."""
    return f"postroom:{{{thread_id}}}:lock"


def lane(thread_id: str) -> str:
    """Runs queued for the thread, by priority, then arrival."""
    return f"postroom:{{{thread_id}}}:lane"


def timers(thread_id: str) -> str:
    """What falls due on the thread: `start R`, `wake R`, `deadline R`, by time."""
    return f"postroom:{{{thread_id}}}:timers"


def log(thread_id: str) -> str:
    """The message log."""
    return f"postroom:{{{thread_id}}}:log"


def mailbox(thread_id: str) -> str:
    """Durable mail not yet read."""
    return f"postroom:{{{thread_id}}}:mailbox"


def outbox(thread_id: str) -> str:
    """What the thread owes to others: errands not yet carried out."""
    return f"postroom:{{{thread_id}}}:outbox"


def outbox_tries(thread_id: str) -> str:
    """Errands that were put off: how often they were tried and when they are due."""
    return f"{outbox(thread_id)}:tries"


def undelivered(thread_id: str) -> str:
    """Errands that were given up, and why."""
    return f"postroom:{{{thread_id}}}:undelivered"


def sent(mail_id: str) -> str:
    """Id of a message that an agent sent → its sender's thread and its recipient's."""
    return f"postroom:sent:{mail_id}"


def thread_state(thread_id: str) -> str:
    """Thread-scoped plugin state."""
    return f"postroom:{{{thread_id}}}:state"


def run(thread_id: str, run_id: str) -> str:
    """The run record."""
    return f"postroom:{{{thread_id}}}:run:{run_id}"


def calls(thread_id: str, run_id: str) -> str:
    """The journal of tool calls whose results are not in the log yet."""
    return f"{run(thread_id, run_id)}:calls"


def run_state(thread_id: str, run_id: str) -> str:
    """Run-scoped plugin state."""
    return f"{run(thread_id, run_id)}:state"


def outputs(thread_id: str, run_id: str) -> str:
    """Whole results of tools that were too long for the log, by step and call."""
    return f"{run(thread_id, run_id)}:outputs"


def children(thread_id: str, run_id: str) -> str:
    """The run's children: child run → how it reports, and its thread."""
    return f"{run(thread_id, run_id)}:children"


def events(thread_id: str, run_id: str) -> str:
    """The event journal."""
    return f"{run(thread_id, run_id)}:events"


def dedupe_run(thread_id: str, key: str) -> str:
    """Idempotency key of a submission → run id."""
    return f"postroom:{{{thread_id}}}:dedupe:run:{key}"


def dedupe_mail(thread_id: str, mail_id: str) -> str:
    """Id of a mail → its place in the mailbox."""
    return f"postroom:{{{thread_id}}}:dedupe:mail:{mail_id}"


def run_index(run_id: str) -> str:
    """Run id → thread id."""
    return f"postroom:run:{run_id}"


def delivery(delivery_id: str) -> str:
    """What is owed to a webhook: which event of which run, and how it went so far."""
    return f"postroom:delivery:{delivery_id}"


def agent_version(number: int) -> str:
    """One version of a stored agent."""
    return f"postroom:agent-version:{number}"


def agent_history(agent: str) -> str:
    """The numbers of the versions of an agent that are still there."""
    return f"postroom:agent-history:{agent}"


def profile(owner: str) -> str:
    """What is remembered of an owner across threads."""
    return f"postroom:profile:{{{owner}}}"


def control(worker: str) -> str:
    """Channel of wake-ups for one worker."""
    return f"postroom:control:{worker}"


def limit(model: str) -> str:
    """The rate limit of a model: what is left of its requests and tokens."""
    return f"postroom:limit:{model}"


def limit_queue(model: str) -> str:
    """Requests that wait for their turn at a model, in the order they will get it."""
    return f"{limit(model)}:queue"


def limit_seen(model: str) -> str:
    """The same requests, by when they last asked."""
    return f"{limit(model)}:seen"
