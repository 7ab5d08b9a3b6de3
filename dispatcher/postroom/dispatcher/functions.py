"""Submitting and cancelling from any language: two Redis functions that wrap the very transitions the client uses.

    FCALL postroom_submit 1 'postroom:{order 7}:thread' support 'Where is it?' [name value ...]
    FCALL postroom_cancel 1 'postroom:{order 7}:thread' [run]

`postroom dispatcher` installs them; docs/enqueue.md is their manual.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from postroom.mailbox import codec, scripts
from postroom.mailbox.contract import MAX_TIME, MAX_URL
from postroom.mailbox.ops import Op
from postroom.mailbox.runs import RESERVED_RUN_IDS
from postroom.mailbox.settings import Settings

_SOURCE: Final = files("postroom.dispatcher") / "lua" / "functions.lua"


def library(settings: Settings) -> str:
    """The source of the library; limits and retentions are those of whoever installs it."""
    limits: dict[str, str | int] = {
        "version": f"\\{codec.VERSION}",
        "max_body": settings.max_body_bytes,
        "max_lane": settings.max_lane,
        "max_mail": settings.max_mail,
        "run_retention": settings.run_retention_ms,
        "thread_retention": settings.thread_retention_ms,
        "dedupe": settings.dedupe_ms,
    }
    known = (
        f"local LIMITS = {_table(limits)}",
        f"local RESERVED = {{{', '.join(map(repr, RESERVED_RUN_IDS))}}}",
        f"local MAX_TIME, MAX_URL = {MAX_TIME}, {MAX_URL}",
    )
    return "\n".join(["#!lua name=postroom", scripts.body(), *known, _SOURCE.read_text(encoding="utf-8")])


def _table(values: Mapping[str, str | int]) -> str:
    return "{" + ", ".join(f"{name} = '{value}'" for name, value in values.items()) + "}"


def install(settings: Settings) -> Op[bytes]:
    """Installs the library, in place of an older one."""
    return Op(("FUNCTION", "LOAD", "REPLACE", library(settings)), bytes)
