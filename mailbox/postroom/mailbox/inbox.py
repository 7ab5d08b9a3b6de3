"""A thread's mailbox: a stream of mail nobody has read yet. A mail leaves it in the commit that reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from postroom.mailbox import codec, keys
from postroom.mailbox.contracts import Letter
from postroom.mailbox.doorbell import Doorbell, doorbell
from postroom.mailbox.ops import Op, counted, on_thread
from postroom.mailbox.settings import Settings

Plain = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail: `number` is its place in the mailbox, `id` the sender's name for it."""

    number: int
    id: str
    at: int
    kind: str
    sender: str
    message: Plain


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a mail is in Redis: where it lies, which run will read it, and whether that run needs a worker."""

    outcome: str
    number: int
    run_id: str
    doorbell: Doorbell | None


def fields(kind: str, sender: str, message: Plain, limit: int = codec.MAX_BYTES) -> list[Any]:
    """The stream fields of a mail; plain words are shown as such, the message travels whole in the body."""
    words = "".join(block["text"] for block in message.get("content", ()) if block["type"] == "text")
    return ["kind", kind, "sender", sender, "text", words[:_SHOWN], "body", codec.encode(message, limit)]


_SHOWN = 200


def mail(raw: Sequence[Any]) -> Mail:
    """A mail from XRANGE's reply."""
    flat = raw[1]
    found = {flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}
    return Mail(
        int(raw[0].partition(b"-")[0]),
        found[b"id"].decode(),
        int(found[b"at"]),
        found[b"kind"].decode(),
        found[b"sender"].decode(),
        codec.decode(found[b"body"]),
    )


def send(letter: Letter, settings: Settings, now: int | None = None) -> Op[Receipt]:
    """Delivers a letter: at most once per id, folded into the run that is there or starting one."""
    parts = fields(letter.kind, letter.sender, letter.message.as_dict(), settings.max_body_bytes)
    args = (
        letter.id,
        settings.max_mail,
        letter.agent or "",
        letter.queue,
        letter.run_id or "",
        settings.run_retention_ms,
        settings.thread_retention_ms,
        settings.dedupe_ms,
        *counted(parts),
    )

    def parse(reply: Any) -> Receipt:
        return Receipt(reply[0].decode(), reply[1], reply[2].decode(), doorbell(reply[3]))

    return on_thread("send", letter.thread_id, now, args, parse)


def unread(thread_id: str, count: int = 100) -> Op[list[Mail]]:
    """Mail nobody has read yet."""
    command = ("XRANGE", keys.mailbox(thread_id), "-", "+", "COUNT", count)
    return Op(command, lambda reply: [mail(raw) for raw in reply])


def count(thread_id: str) -> Op[int]:
    """How much mail is unread."""
    return Op(("XLEN", keys.mailbox(thread_id)), int)


def at(thread_id: str, number: int) -> Op[bool]:
    """Whether the mail of that number is still unread."""
    return Op(("XRANGE", keys.mailbox(thread_id), f"{number}-0", f"{number}-0"), bool)
