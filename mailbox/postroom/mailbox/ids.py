"""New ids: time-ordered, unique without asking anybody, and safe in keys, lock values and RQ job ids."""

import os
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
# Two characters at a time take half as long.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(120, -1, -10)


def new_id() -> str:
    """26 characters: 48 bits of milliseconds, then 80 bits of chance."""
    number = (int(time.time() * 1000) << 80) | int.from_bytes(os.urandom(10), "big")
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS])
