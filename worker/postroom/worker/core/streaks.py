from dataclasses import dataclass


@dataclass
class Verdict:
    stop: str = ""
    note: str = ""


def after_calls(streaks, calls, limit):
    return streaks, Verdict()
