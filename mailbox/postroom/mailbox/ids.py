"""New ids: time-ordered, unique without asking anybody, and safe in keys, lock values and RQ job ids."""

import os
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id() -> str:
    """26 characters: 48 bits of milliseconds, then 80 bits of chance."""
    number = (int(time.time() * 1000) << 80) | int.from_bytes(os.urandom(10), "big")
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))
