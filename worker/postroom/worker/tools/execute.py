"""Carrying a call out: whatever the tool does, there is one outcome, and only a cancel gets through."""

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

from postroom.mailbox import codec
from postroom.mailbox.contracts import ResumeMode
from postroom.mailbox.errors import PostroomError
from postroom.worker.core.calls import Outcome, failure
from postroom.worker.core.command import as_plain
from postroom.worker.tools.base import Plain, Retry, Tool, ToolContext
from postroom.worker.tools.errors import InvalidArguments, InvalidOutput, ToolFailed
from postroom.worker.tools.results import decided
from postroom.worker.tools.schema import wanted

# The journal and the log hold an output each, next to other things.
_LARGEST = codec.MAX_BYTES // 2
_strictly = json.JSONEncoder(allow_nan=False).encode
_log = logging.getLogger(__name__)
# What can be kept whatever its value.
_SIMPLE = frozenset({bool, type(None)})
Sleep = Callable[[float], Awaitable[None]]


async def execute(
    tool: Tool,
    arguments: Plain | str | None,
    context: ToolContext,
    *,
    sleep: Sleep = asyncio.sleep,
    chance: Callable[[], float] = random.random,
) -> Outcome:
    """What became of the call. The tool's timeout covers all its attempts and the waits between them."""
    if answered := _answered(context):
        return answered
    try:
        checked = check(tool, arguments)
    except InvalidArguments as error:
        return _failed(tool, error)
    try:
        async with asyncio.timeout(tool.timeout):
            return await _tried(tool, checked, context, sleep, chance)
    except TimeoutError:
        return failure("timeout", f"{tool.name} did not answer within {tool.timeout:g} s", timed_out=True)


def refusal(tool: Tool, arguments: Plain | str | None) -> Outcome | None:
    """What is wrong with the arguments, to be known before a person is asked to approve them."""
    try:
        check(tool, arguments)
    except InvalidArguments as error:
        return _failed(tool, error)
    return None


def check(tool: Tool, arguments: Plain | str | None) -> Any:
    """The arguments as the tool wants them; an error says what is wrong and what was wanted."""
    try:
        return tool.check(_parsed(arguments))
    except Exception as error:
        reason = error.message if isinstance(error, ToolFailed) else _words(error)
        raise InvalidArguments(
            f"{tool.name} cannot be called with these arguments: {reason}. It takes: {wanted(tool.parameters)}"
        ) from None


def not_found(name: str) -> Outcome:
    """What became of a call to a tool that is not there, or was not offered."""
    return failure("not_found", f"tool '{name}' not found")


def _answered(context: ToolContext) -> Outcome | None:
    ticket, decision = context.ticket, context.decision
    if ticket and decision and ticket.resume_mode is ResumeMode.USE_DECISION_AS_TOOL_RESULT:
        return decided(decision)
    return None


def _parsed(arguments: Plain | str | None) -> Plain:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments.strip() or "{}")
        except ValueError as error:
            raise InvalidArguments(f"the text is not JSON ({error})") from None
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise InvalidArguments(f"a JSON object is needed, not a {type(arguments).__name__}")
    return arguments


async def _tried(tool: Tool, checked: Any, context: ToolContext, sleep: Sleep, chance: Callable[[], float]) -> Outcome:
    outcome = await _once(tool, checked, context)
    for again, longest in enumerate(_waits(tool.retry), 1):
        if not (outcome.failed and outcome.metadata.get("transient")):
            break
        # Full jitter: those who failed together do not come back together.
        await sleep(longest * chance())
        outcome = await _once(tool, checked, replace(context, attempt=context.attempt + again))
    return outcome


def _waits(retry: Retry) -> Iterator[float]:
    return (min(retry.longest_wait, retry.first_wait * 2**times) for times in range(retry.times))


async def _once(tool: Tool, checked: Any, context: ToolContext) -> Outcome:
    task = asyncio.current_task()
    earlier = task.cancelling() if task else 0
    try:
        outcome = _storable(await tool.run(checked, context), context)
    except asyncio.CancelledError:
        # One that nobody asked this task for comes from within the tool and is its failure, not the run's end.
        if task is None or task.cancelling() > earlier:
            raise
        outcome = failure("cancelled", f"{tool.name} was cancelled from within")
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        outcome = _failed(tool, error)
    if task and task.cancelling() > earlier:
        raise asyncio.CancelledError  # the tool swallowed it
    return outcome


def _storable(outcome: Outcome, context: ToolContext) -> Outcome:
    if type(outcome.data) in _SIMPLE and outcome.message is None and not outcome.metadata and not outcome.command:
        return outcome
    # Found out here it is the model's to hear; found out at the commit it would end the run.
    try:
        codec.encode([outcome.data, outcome.message, outcome.metadata, as_plain(outcome.command)], _LARGEST)
        _strictly([outcome.data, outcome.metadata])
        context.state.apply(outcome.command.updates)
    except (PostroomError, ValueError, TypeError) as error:
        raise InvalidOutput(f"the tool's answer cannot be kept: {error}") from None
    return outcome


def _failed(tool: Tool, error: BaseException) -> Outcome:
    if isinstance(error, ToolFailed):
        return failure(error.code, _encodable(error.message), **{"transient": True} if error.transient else {})
    _log.warning("tool %s failed", tool.name, exc_info=error)
    return failure("execution_failed", _words(error))


def _words(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_words(each) for each in error.exceptions)
    told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return _encodable(told)


def _encodable(words: str) -> str:
    return words.encode("utf-8", "replace").decode()
