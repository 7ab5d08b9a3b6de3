from dataclasses import dataclass
from typing import Any

StopPolicy = Any


@dataclass
class Found:
    code: str
    detail: str


@dataclass
class MaxRounds:
    rounds: int = 16


RunStats = dict


def counted(stats, reply, now):
    return {**stats, "rounds": stats.get("rounds", 0) + 1}


def first_stop(policies, stats, reply, now):
    for p in policies:
        if isinstance(p, MaxRounds) and p.rounds and stats["rounds"] >= p.rounds:
            return ("max_rounds", "")
    return None
