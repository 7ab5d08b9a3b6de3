"""Bodies on the wire: one version byte, then msgpack. Anything else is refused by name, never half read."""

from typing import Any

import msgpack

from postroom.mailbox.errors import BodyTooLarge, BodyUnreadable, InvalidInput

VERSION = 1
MAX_BYTES = 8 << 20
# What a reader accepts, whatever the writer's limit was: a setting can only lower what may be written.
READ_BYTES = 64 << 20
_PREFIX = bytes([VERSION])


def encode(value: Any, limit: int = MAX_BYTES) -> bytes:
    """Bytes of a JSON-like value; a foreign type or too large a body is the caller's mistake."""
    try:
        body = _PREFIX + bytes(msgpack.packb(value, use_bin_type=True))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"this value cannot be stored: {error}; use text, numbers, lists and maps") from None
    if len(body) > limit:
        raise BodyTooLarge(f"the body has {len(body)} bytes, the limit is {limit}; store it elsewhere and send a link")
    return body


def decode(body: bytes, limit: int = READ_BYTES) -> Any:
    """The value of stored bytes, or one clear error."""
    if not body:
        raise BodyUnreadable("the body is empty")
    if len(body) > limit + 1:
        raise BodyUnreadable(f"the body has {len(body)} bytes, the limit is {limit}")
    if body[0] != VERSION:
        raise BodyUnreadable(f"the body was written in format {body[0]}, this version reads format {VERSION}")
    try:
        return msgpack.unpackb(body[1:], raw=False, strict_map_key=False, ext_hook=_no_extension)
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise BodyUnreadable(f"the body is not valid format {VERSION}: {str(error) or type(error).__name__}") from None


def fitting(words: str, limit: int) -> str:
    """The words, if they keep to the limit that bodies have."""
    # No character takes more than four bytes.
    if len(words) * 4 > limit and (len(words) > limit or len(words.encode("utf-8", "replace")) > limit):
        raise BodyTooLarge(f"the text has {len(words)} characters, the limit is {limit} bytes; store it elsewhere")
    return words


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code} is not used here")
