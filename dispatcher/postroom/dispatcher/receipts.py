"""What became of what was sent: messages on their way, and the runs that a run has started."""

from dataclasses import dataclass

from postroom.dispatcher.plans import Plan, all_of, one
from postroom.mailbox import errands, inbox, keys, records
from postroom.mailbox.contracts import RunRecord
from postroom.mailbox.errors import NotFound
from postroom.mailbox.ops import Op, hash_fields
from postroom.mailbox.settings import Settings


@dataclass(frozen=True, slots=True)
class MailStatus:
    """Where a message is: `queued` at its sender, `accepted` in the mailbox, `applied` when read, or `failed`."""

    mail_id: str
    status: str
    thread_id: str
    run_id: str = ""
    error: str = ""


def receipt(settings: Settings, /, mail_id: str, thread: str | None = None) -> Plan[MailStatus]:
    """What became of a message an agent sent, by its id; of one sent from outside, with the recipient's thread."""
    sender, recipient = "", thread
    if recipient is None:
        known = yield from one(Op(("GET", keys.sent(mail_id)), lambda reply: reply.decode() if reply else ""))
        sender, _, recipient = known.partition("\n")
        if not recipient:
            raise NotFound(
                f"no agent has sent a message {mail_id!r}, or it is too long ago; give the recipient's thread"
            )
    # In this order, since that is how a message moves.
    raw, place, lost = yield from all_of(
        [
            errands.waiting(sender),
            Op(("GET", keys.dedupe_mail(recipient, mail_id)), lambda reply: reply.decode() if reply else ""),
            errands.undelivered(sender),
        ]
    )
    if any(each.id == mail_id for each in errands.read(raw, {})):
        return MailStatus(mail_id, "queued", recipient)
    if place:
        number, _, reader = place.partition(" ")
        unread = yield from one(inbox.at(recipient, int(number)))
        return MailStatus(mail_id, "accepted" if unread else "applied", recipient, reader)
    for each in lost:
        if each.errand.id == mail_id:
            return MailStatus(mail_id, "failed", recipient, error=f"transport_failed: {each.error}")
    raise NotFound(f"nothing is known of a message {mail_id!r} to thread {recipient!r}; it may be too long ago")


def descendants(settings: Settings, /, run_id: str) -> Plan[list[RunRecord]]:
    """The runs that a run has started and whose answers it has not had, with those they have started."""
    found: list[RunRecord] = []
    parents = [(run_id, (yield from one(records.thread_of(run_id))))]
    while parents:
        hashes = yield from all_of([Op(("HGETALL", keys.children(place, run)), hash_fields) for run, place in parents])
        places = [(run, told.decode().partition(" ")[2]) for each in hashes for run, told in each.items()]
        known = yield [records.get_run(place, run) for run, place in places]
        children = [record for record in known if isinstance(record, RunRecord)]
        found += children
        parents = [(record.run_id, record.thread_id) for record in children]
    return found
