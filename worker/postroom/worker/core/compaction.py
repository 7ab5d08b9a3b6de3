"""Summaries in place of what was said long ago: when, of what, asked how, and whether the answer is good enough.

The log is only ever added to. A summary is one more entry that says which interval it covers, and readers see it in
place of that. A summary of later messages takes up the one before it, so there is one rolling summary and no chain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import Field

from postroom.mailbox.contract import Contract
from postroom.worker.core import tokens
from postroom.worker.core.context import SHRUNK_CHARACTERS, SHRUNK_LINES, CompactionMode, ContextPolicy
from postroom.worker.core.groups import pinned
from postroom.worker.core.limits import cut

Plain = dict[str, Any]
# A summary that saves fewer tokens is not worth a request.
MIN_GAIN = 1024
OPENING, CLOSING = "<conversation-summary>", "</conversation-summary>"

_SYSTEM = """\
You condense conversations between a user and an assistant that works with tools. The assistant will go on with your \
summary in place of what you read, so nothing it still needs may be missing, and nothing may be added."""
_PROMPT = """\
Summarise the conversation above, taking up the earlier summary if there is one. Keep: what the user wants and under \
which conditions, decisions and the reasons for them, facts, names, numbers, identifiers and paths found out, what was \
done and what came of it, what failed, and what is still open. Leave out pleasantries and the wording of tool outputs. \
Answer with the summary alone, in the language of the conversation."""


class CompactionPolicy(Contract):
    """Whether and how summaries are made. From how many tokens on is the context policy's `autocompact_threshold`."""

    mode: Literal["background", "off"] = "background"
    summary_max_tokens: Annotated[int, Field(gt=0)] = 1024
    summary_model: Annotated[str, Field(min_length=1)] | None = None
    min_savings_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.3
    system_prompt: Annotated[str, Field(min_length=1)] = _SYSTEM
    prompt: Annotated[str, Field(min_length=1)] = _PROMPT


class Entry(Protocol):
    """An entry of the log as it is read: `covers` is the interval that a summary stands for."""

    @property
    def seq(self) -> int: ...
    @property
    def message(self) -> Plain: ...
    @property
    def covers(self) -> tuple[int, int] | None: ...


E = TypeVar("E", bound=Entry)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be summarised: the interval of the log, the messages in it, and how many tokens they take.

    `previous` is the summary they begin with. `read_from` is the first entry still needed once a summary is written.
    """

    from_seq: int
    to_seq: int
    messages: tuple[Plain, ...]
    tokens: int
    previous: str
    read_from: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary good enough for the log, with the interval its entry covers and the tokens it saves."""

    message: Plain
    covers: tuple[int, int]
    read_from: int
    saved: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Why there is no summary."""

    reason: str


def due(total: int, context: ContextPolicy, policy: CompactionPolicy) -> bool:
    """Whether a thread of so many tokens should be summarised."""
    threshold = context.autocompact_threshold
    return policy.mode == "background" and threshold is not None and total >= threshold


def plan(
    entries: Sequence[Entry], context: ContextPolicy, policy: CompactionPolicy, room: int | None = None
) -> Plan | None:
    """The first stretch worth summarising, as long as can be, or None.

    `room` is how many tokens the summarising model can read; without it, as many as the model of the thread.
    """
    room = (context.input_tokens if room is None else room) - _spent_on_asking(policy)
    for stretch in _stretches(entries[: _frontier(entries, context)]):
        part = _readable(stretch, room)
        total = sum(tokens.of_message(each.message) for each in part)
        if total - policy.summary_max_tokens >= MIN_GAIN:
            covered = {each.seq for each in part}
            left = [each.seq for each in entries if each.seq not in covered]
            to_seq = max(_interval(each)[1] for each in part)
            return Plan(
                min(_interval(each)[0] for each in part),
                to_seq,
                tuple(each.message for each in part if not each.covers),
                total,
                "\n\n".join(_unwrapped(each.message) for each in part if each.covers),
                min(left, default=to_seq + 1),
            )
    return None


def request(plan: Plan, policy: CompactionPolicy) -> tuple[Plain, ...]:
    """What the summarising model is asked."""
    return _asking(plan.messages, plan.previous, policy)


def accept(plan: Plan, answer: str, policy: CompactionPolicy) -> Summary | Skipped:
    """The summary for the log, if it says something and saves enough."""
    words = answer.strip().removeprefix(OPENING).removesuffix(CLOSING).strip()
    if not words:
        return Skipped("the summary is empty")
    message = {**_message("system", f"{OPENING}\n{words}\n{CLOSING}"), "visibility": "internal"}
    saved = plan.tokens - tokens.of_message(message)
    if saved < plan.tokens * policy.min_savings_ratio:
        least = f"{policy.min_savings_ratio:.0%}"
        return Skipped(f"the summary saves {max(saved, 0)} of {plan.tokens} tokens, which is less than {least}")
    return Summary(message, (plan.from_seq, plan.to_seq), plan.read_from, saved)


def _frontier(entries: Sequence[Entry], context: ContextPolicy) -> int:
    """How many entries may be covered at most: never the latest question, nor what the policy keeps raw."""
    asked = [place for place, each in enumerate(entries) if each.message["role"] == "user"]
    heard = [place for place in asked if entries[place].message.get("visibility") != "internal"]
    latest = (heard or asked or [len(entries)])[-1]
    if context.compaction_mode is CompactionMode.COMPACT_TO_SAFE_FRONTIER:
        return latest
    return min(latest, max(len(entries) - context.compaction_raw_suffix_messages, 0))


def _stretches(entries: Sequence[E]) -> Iterator[list[list[E]]]:
    """Runs of units that may be covered; what is pinned or of the role system stays as it is and parts them."""
    stretch: list[list[E]] = []
    for unit in _units(entries):
        if any(pinned(each.message) or (each.message["role"] == "system" and not each.covers) for each in unit):
            yield stretch
            stretch = []
        else:
            stretch.append(unit)
    yield stretch


def _units(entries: Sequence[E]) -> Iterator[list[E]]:
    """The entries in pieces after which no call is open; the last piece is left out if one is."""
    waiting: set[str] = set()
    unit: list[E] = []
    for each in entries:
        unit.append(each)
        waiting |= {call["id"] for call in each.message.get("tool_calls", ())}
        waiting.discard(each.message.get("tool_call_id", ""))
        if not waiting:
            yield unit
            unit = []


def _readable(stretch: list[list[E]], room: int) -> list[E]:
    """The beginning of a stretch that fits into the room, as it is going to be read."""
    part: list[E] = []
    for unit in stretch:
        room -= sum(tokens.of_text(line) + 1 for each in unit for line in _lines(each.message))
        if room < 0:
            break
        part += unit
    return part


def _asking(messages: Sequence[Plain], previous: str, policy: CompactionPolicy) -> tuple[Plain, ...]:
    said = "\n\n".join(line for message in messages for line in _lines(message))
    earlier = f"<earlier-summary>\n{previous}\n</earlier-summary>\n\n" if previous else ""
    question = f"{earlier}<conversation>\n{said}\n</conversation>\n\n{policy.prompt}"
    return _message("system", policy.system_prompt), _message("user", question)


def _spent_on_asking(policy: CompactionPolicy) -> int:
    return sum(map(tokens.of_message, _asking((), "", policy)))


def _interval(entry: Entry) -> tuple[int, int]:
    return entry.covers or (entry.seq, entry.seq)


def _message(role: str, text: str) -> Plain:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def _words(message: Plain) -> str:
    """What is said in a message; reasoning is left out, and what cannot be read is named."""
    kinds = (block for block in message.get("content", ()) if block["type"] != "thinking")
    return "\n".join(block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in kinds)


def _unwrapped(summary: Plain) -> str:
    return _words(summary).removeprefix(OPENING).removesuffix(CLOSING).strip()


def _lines(message: Plain) -> Iterator[str]:
    """A message as the summarising model reads it."""
    if words := _words(message):
        shown = cut(words, SHRUNK_CHARACTERS, SHRUNK_LINES)[0] if message["role"] == "tool" else words
        yield f"{message['role']}: {shown}"
    for call in message.get("tool_calls", ()):
        yield f"assistant calls {call['name']}: {tokens.written(call['arguments'])}"
