"""What of a thread a model gets to read: all of it, as long as it fits.

Where it does not, measures are taken in this order until it does: old tool outputs are shrunk, the oldest groups are
left out, recent tool outputs are shrunk, recent groups are left out. System messages, pinned ones, the latest question
and the latest group always stay; if not even they fit, that is an error.

Providers keep what they have read as long as a request begins as the one before did. So measures are taken in jumps:
more is left out than needed, and the beginning stays the same for many steps. The jumps depend on the messages alone,
so another worker continues with the same beginning.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, count, pairwise
from operator import sub
from typing import Annotated, Any

from pydantic import Field

from postroom.mailbox.contract import Contract
from postroom.worker.core import tokens
from postroom.worker.core.errors import WindowTooSmall
from postroom.worker.core.groups import in_order, paired, pinned
from postroom.worker.core.limits import cut
from postroom.worker.core.tokens import Memo
from postroom.worker.model.base import Limits, ToolSpec

Plain = dict[str, Any]

# A tool output of more tokens than this is shrunk to so many characters and lines.
SHRINK_ABOVE, SHRUNK_CHARACTERS, SHRUNK_LINES = 2048, 1600, 24
# What is left out is a multiple of this part of the room.
JUMPS = 4


# Tools outlive runs: each is weighed once in a process.
_TOOL_TOKENS = Memo(tokens.of_tool)


class CompactionMode(StrEnum):
    """How far a summary may reach: up to the last few messages, or as far as it is safe."""

    KEEP_RECENT_RAW_SUFFIX = "keep_recent_raw_suffix"
    COMPACT_TO_SAFE_FRONTIER = "compact_to_safe_frontier"


class ContextPolicy(Contract):
    """How much of a thread a model gets to read, in tokens, and from how many on it is summarised."""

    max_context_tokens: Annotated[int, Field(gt=0)] = 200_000
    max_output_tokens: Annotated[int, Field(gt=0)] = 16_384
    min_recent_messages: Annotated[int, Field(ge=0)] = 10
    enable_prompt_cache: bool = True
    autocompact_threshold: Annotated[int, Field(gt=0)] | None = None
    compaction_mode: CompactionMode = CompactionMode.KEEP_RECENT_RAW_SUFFIX
    compaction_raw_suffix_messages: Annotated[int, Field(ge=0)] = 2

    @property
    def reserved_tokens(self) -> int:
        """Kept free for the answer; never more than half of a window, or a small one could read nothing."""
        return min(self.max_output_tokens, self.max_context_tokens // 2)

    @property
    def input_tokens(self) -> int:
        """Left for tools and messages."""
        return self.max_context_tokens - self.reserved_tokens

    def within(self, limits: Limits) -> "ContextPolicy":
        """The policy as far as a model can follow it."""
        known = self.model_copy(
            update={
                "max_context_tokens": min(self.max_context_tokens, limits.context_window or self.max_context_tokens),
                "max_output_tokens": min(self.max_output_tokens, limits.max_output_tokens or self.max_output_tokens),
            }
        )
        if self.autocompact_threshold is None:
            return known
        return known.model_copy(update={"autocompact_threshold": min(self.autocompact_threshold, known.input_tokens)})


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a model gets to read, how many messages were left out and shrunk for that, and the estimate of the rest."""

    messages: tuple[Plain, ...]
    dropped: int
    shrunk: int
    tokens: int


@dataclass(frozen=True, slots=True)
class _Last:
    """What came of the request before: how many messages it was made of, the last of them, the room it had."""

    count: int
    tail: Plain
    room: int
    fitted: Fitted


class Cache:
    """What was worked out for messages and tools already, for as long as somebody keeps it."""

    def __init__(self) -> None:
        self.last: _Last | None = None
        self.tokens = Memo(tokens.of_message)
        self.tool = _TOOL_TOKENS
        self.shrunk = Memo(self._shrunk)
        self._seen: tuple[Plain, ...] = ()
        self._total = 0

    def weighed(self, messages: Sequence[Plain]) -> tuple[tuple[Plain, ...], int]:
        """The messages, paired, and their tokens. A history grows at its end: only what is new there is looked at."""
        whole = tuple(messages)
        known = len(self._seen) if whole[: len(self._seen)] == self._seen else 0
        total = self._total if known else 0
        if not in_order(whole[known:]):
            whole, known, total = paired(whole), 0, 0
        self._seen, self._total = whole, total + sum(map(self.tokens, whole[known:]))
        return self._seen, self._total

    def _shrunk(self, message: Plain) -> Plain:
        if message["role"] != "tool" or pinned(message) or self.tokens(message) <= SHRINK_ABOVE:
            return message
        said = "\n".join(block.get("text") or f"[{block['type']} left out]" for block in message["content"])
        return {**message, "content": [{"type": "text", "text": cut(said, SHRUNK_CHARACTERS, SHRUNK_LINES)[0]}]}


def fit(
    messages: Sequence[Plain], tools: Sequence[ToolSpec], policy: ContextPolicy, cache: Cache | None = None
) -> Fitted:
    """The messages that a model may be sent along with these tools, or WindowTooSmall."""
    known = cache or Cache()
    tool_tokens = sum(map(known.tool, tools))
    room = policy.input_tokens - tool_tokens
    fitted = _continued(messages, room, known) or _made(messages, room, policy, tool_tokens, known)
    known.last = _Last(len(messages), messages[-1], room, fitted) if messages else None
    return fitted


def _continued(messages: Sequence[Plain], room: int, known: Cache) -> Fitted | None:
    """The request before with what was said since, if that still fits: a step costs the same however many came before.

    A thread only grows, so the same message in the same place stands for all that is in front of it.
    """
    last = known.last
    if last is None or last.room != room or len(messages) < last.count or messages[last.count - 1] is not last.tail:
        return None
    fresh = messages[last.count :]
    total = last.fitted.tokens + sum(map(known.tokens, fresh))
    if total > room or not in_order(fresh):
        return None
    return Fitted((*last.fitted.messages, *fresh), last.fitted.dropped, last.fitted.shrunk, total)


def _made(messages: Sequence[Plain], room: int, policy: ContextPolicy, tool_tokens: int, known: Cache) -> Fitted:
    whole, total = known.weighed(messages)
    if total <= room:
        return Fitted(whole, 0, 0, total)
    fitted = _smaller(whole, room, policy.min_recent_messages, known)
    if fitted.tokens > room:
        raise WindowTooSmall(
            f"what must stay of this thread takes about {fitted.tokens} tokens, the window has room for {max(room, 0)} "
            f"({policy.max_context_tokens} less {policy.reserved_tokens} for the answer and {tool_tokens} for tools); "
            "take a model with a larger window, raise max_context_tokens, or send less"
        )
    return fitted


def _smaller(whole: tuple[Plain, ...], room: int, recent: int, known: Cache) -> Fitted:
    """The first that fits of what the measures make of the messages, or the last of all."""
    small = tuple(map(known.shrunk, whole))
    large_sums = [0, *accumulate(map(known.tokens, whole))]
    small_sums = [0, *accumulate(map(known.tokens, small))]
    units = list(_expendable(whole))
    ends = [unit[-1].stop for unit in units]
    saved = [0, *accumulate(sum(small_sums[group.stop] - small_sums[group.start] for group in unit) for unit in units)]
    everything, old, stride = len(whole), max(len(whole) - recent, 0), max(recent // 2, 1)
    # Measured as if all were shrunk, a history only grows. With room on top for as much as recent outputs ever took,
    # what is left out grows in jumps and does not come back because an output is recent no longer.
    jump = max(room // JUMPS, 1)
    spare = min(_most_within(recent + stride, list(map(sub, large_sums, small_sums))), jump)
    first = -((room - spare - small_sums[-1]) // jump)
    steadily = old - old % stride
    for shrink_to, drop_to in ((steadily, steadily), (old, old), (everything, old), (everything, everything)):
        total = small_sums[shrink_to] + large_sums[-1] - large_sums[shrink_to]
        most = bisect_right(ends, drop_to)
        for jumps in count(first):
            gone = min(bisect_left(saved, jumps * jump), most)
            if total - saved[gone] <= room or gone == most:
                break
        if total - saved[gone] <= room:
            break
    left_out = {place for unit in units[:gone] for group in unit for place in group}
    kept = [place for place in range(len(whole)) if place not in left_out]
    return Fitted(
        tuple(small[place] if place < shrink_to else whole[place] for place in kept),
        len(left_out),
        sum(place < shrink_to and small[place] is not whole[place] for place in kept),
        total - saved[gone],
    )


def _most_within(width: int, sums: list[int]) -> int:
    """The most that so many neighbours add up to anywhere, given running sums."""
    return max(map(sub, sums[width:], sums), default=sums[-1])


def _expendable(whole: tuple[Plain, ...]) -> Iterator[tuple[range, ...]]:
    """The groups that may go, oldest first; a question goes with the last of its answers and not before."""
    groups = [range(*ends) for ends in pairwise([*_starts(whole), len(whole)])]
    fixed = _fixed(whole)
    for question, answers in _turns(whole, groups):
        free = [group for group in answers if fixed.isdisjoint(group)]
        goes = [group for group in question if len(free) == len(answers) and fixed.isdisjoint(group)]
        yield from ((group,) for group in free[:-1])
        if last := (*goes, *free[-1:]):
            yield last


def _starts(whole: tuple[Plain, ...]) -> list[int]:
    return [place for place, message in enumerate(whole) if message["role"] != "tool"]


def _turns(whole: tuple[Plain, ...], groups: list[range]) -> Iterator[tuple[list[range], list[range]]]:
    """Each question, if there is one, and what was said until the next."""
    question: list[range] = []
    answers: list[range] = []
    for group in groups:
        role = whole[group.start]["role"]
        if role == "user":
            yield question, answers
            question, answers = [group], []
        elif role != "system":
            answers.append(group)
    yield question, answers


def _fixed(whole: tuple[Plain, ...]) -> set[int]:
    """The places of messages that never go: pinned ones, the latest that was said, the latest that somebody asked."""
    said = [place for place in _starts(whole) if whole[place]["role"] != "system"]
    asked = (place for place in reversed(said) if whole[place]["role"] == "user")
    heard = next((place for place in asked if whole[place].get("visibility") != "internal"), None)
    pins = {place for place, message in enumerate(whole) if pinned(message)}
    return {*pins, *said[-1:]} if heard is None else {*pins, *said[-1:], heard}
