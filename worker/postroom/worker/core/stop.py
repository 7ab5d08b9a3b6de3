"""When a run has gone on for long enough: policies as data, and the count they judge by.

After each answer the count is brought up to date and the policies are asked: the limit of rounds first, then the others
in their order; the first that says stop is heard. The count is part of the run's state, so neither a wait nor another
worker begins it again.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Annotated, Literal, TypedDict

from pydantic import Field

from postroom.mailbox.contract import Contract
from postroom.worker.core.state import StateKey
from postroom.worker.model.reply import Reply

# A pattern is looked for in so many characters from the end. This bounds patterns whose cost grows with a power of the
# length; one that backtracks without end, such as `(a+)+$`, is the mistake of whoever wrote the agent.
MATCHED_CHARACTERS = 10_000
Verdict = tuple[str, str] | None


class RunStats(TypedDict, total=False):
    """The count, as plain data. Times are milliseconds; `worked_ms` leaves out the time a run waited.

    Of the texts only the last is known, by its digest, and how often it came in a row: state is written in every step.
    """

    rounds: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    tool_calls: int
    started_ms: int
    seen_ms: int
    worked_ms: int
    consecutive_errors: int
    last_text: str
    same_texts: int


RUN_STATS: StateKey[RunStats, RunStats] = StateKey("runtime.run_stats", {})


def resumed(stats: RunStats, now: int) -> RunStats:
    """The count when a worker takes the run up; what passed since the last one let go was no work."""
    return {**stats, "started_ms": stats.get("started_ms", now), "seen_ms": now}


def counted(stats: RunStats, reply: Reply, now: int) -> RunStats:
    """The count after an answer."""
    text = reply.text.strip()
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest() if text else ""
    repeated = stats.get("same_texts", 0) + 1 if digest == stats.get("last_text") else 1
    said: RunStats = {"last_text": digest, "same_texts": repeated} if text else {}
    return {
        **_later(stats, now),
        "rounds": stats.get("rounds", 0) + 1,
        "input_tokens": stats.get("input_tokens", 0) + reply.usage.input_tokens,
        "output_tokens": stats.get("output_tokens", 0) + reply.usage.output_tokens,
        "cost_usd": stats.get("cost_usd", 0.0) + reply.usage.cost_usd,
        "tool_calls": stats.get("tool_calls", 0) + len(reply.calls),
        "consecutive_errors": 0,
        **said,
    }


def failed(stats: RunStats, now: int) -> RunStats:
    """The count after a request that no model answered."""
    return {**_later(stats, now), "consecutive_errors": stats.get("consecutive_errors", 0) + 1}


def _later(stats: RunStats, now: int) -> RunStats:
    stats = stats if "seen_ms" in stats else resumed(stats, now)
    # A worker's clock may be behind the last one's.
    return {**stats, "worked_ms": stats.get("worked_ms", 0) + max(now - stats["seen_ms"], 0), "seen_ms": now}


class MaxRounds(Contract):
    """Stops after so many answers; 0 is no limit."""

    type: Literal["max_rounds"] = "max_rounds"
    rounds: Annotated[int, Field(ge=0)] = 16

    def judge(self, stats: RunStats, reply: Reply | None, now: int) -> Verdict:
        return _over(self.type, "rounds", stats.get("rounds", 0), self.rounds - 1) if self.rounds else None


class Timeout(Contract):
    """Stops after so many seconds of work; the time in which the run waited for somebody does not count."""

    type: Literal["timeout"] = "timeout"
    seconds: Annotated[float, Field(gt=0)]

    def judge(self, stats: RunStats, reply: Reply | None, now: int) -> Verdict:
        return _over(self.type, "seconds of work", _later(stats, now)["worked_ms"] / 1000, self.seconds)


class WallClock(Contract):
    """Stops so many seconds after the run began, whatever it did in them."""

    type: Literal["wall_clock"] = "wall_clock"
    seconds: Annotated[float, Field(gt=0)]

    def judge(self, stats: RunStats, reply: Reply | None, now: int) -> Verdict:
        return _over(self.type, "seconds", (now - stats.get("started_ms", now)) / 1000, self.seconds)


class TokenBudget(Contract):
    """Stops when more tokens than this were read and written."""

    type: Literal["token_budget"] = "token_budget"
    max_total: Annotated[int, Field(gt=0)]

    def judge(self, stats: RunStats, reply: Reply | None, now: int) -> Verdict:
        spent = stats.get("input_tokens", 0) + stats.get("output_tokens", 0)
        return _over(self.type, "tokens", spent, self.max_total)


class MaxCost(Contract):
    """Stops when more dollars than this were spent, as far as prices are known."""

    type: Literal["max_cost"] = "max_cost"
    max_usd: Annotated[float, Field(gt=0)]

    def judge(self, stats: RunStats, reply: Reply | None, now: int) -> Verdict:
        return _over(self.type, "dollars", stats.get("cost_usd", 0.0), self.max_usd)


class MaxToolCalls(Contract):
    """Stops when the model has asked for more calls than this; the calls of that answer are not carried out."""

    type: Literal["max_tool_calls"] = "max_tool_calls"
    max: Annotated[int, Field(ge=0)]

    def judge(self, stats: RunStats, reply: Reply | None, now: int) -> Verdict:
        return _over(self.type, "tool calls", stats.get("tool_calls", 0), self.max)


class ConsecutiveErrors(Contract):
    """Stops after so many requests in a row that no model answered."""

    type: Literal["consecutive_errors"] = "consecutive_errors"
    max: Annotated[int, Field(gt=0)]

    def judge(self, stats: RunStats, reply: Reply | None, now: int) -> Verdict:
        return _over(self.type, "errors in a row", stats.get("consecutive_errors", 0), self.max - 1)


class StopOnTool(Contract):
    """Stops when the model asks for this tool; the call is not carried out."""

    type: Literal["stop_on_tool"] = "stop_on_tool"
    tool_name: Annotated[str, Field(min_length=1)]

    def judge(self, stats: RunStats, reply: Reply | None, now: int) -> Verdict:
        called = reply is not None and any(call.name == self.tool_name for call in reply.calls)
        return (self.type, f"{self.tool_name} was called") if called else None


class ContentMatch(Contract):
    """Stops when the end of an answer (10,000 characters) matches; a pattern that cannot be read stops the run too."""

    type: Literal["content_match"] = "content_match"
    pattern: str

    def judge(self, stats: RunStats, reply: Reply | None, now: int) -> Verdict:
        try:
            found = re.search(self.pattern, reply.text[-MATCHED_CHARACTERS:]) if reply else None
        except (re.error, OverflowError, RecursionError) as error:
            return "content_match_invalid_regex", f"pattern {self.pattern!r} cannot be read: {error}"
        return (self.type, f"the answer matches {self.pattern!r}") if found else None


class LoopDetection(Contract):
    """Stops when the last so many answers with words in them were the same."""

    type: Literal["loop_detection"] = "loop_detection"
    window: Annotated[int, Field(ge=2)] = 3

    def judge(self, stats: RunStats, reply: Reply | None, now: int) -> Verdict:
        return _over(self.type, "times the same answer", stats.get("same_texts", 0), self.window - 1)


StopPolicy = Annotated[
    MaxRounds
    | Timeout
    | WallClock
    | TokenBudget
    | MaxCost
    | MaxToolCalls
    | ConsecutiveErrors
    | StopOnTool
    | ContentMatch
    | LoopDetection,
    Field(discriminator="type"),
]
DEFAULT: tuple[StopPolicy, ...] = (MaxRounds(),)


def first_stop(policies: Iterable[StopPolicy], stats: RunStats, reply: Reply | None, now: int) -> Verdict:
    """Code and reason of the first policy that stops the run; the limit of rounds is asked before all others."""
    for policy in sorted(policies, key=lambda each: not isinstance(each, MaxRounds)):
        if verdict := policy.judge(stats, reply, now):
            return verdict
    return None


def _over(code: str, what: str, have: float, allowed: float) -> Verdict:
    return (code, f"{have:g} {what}") if have > allowed else None
