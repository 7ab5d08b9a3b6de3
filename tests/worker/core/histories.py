"""Messages and whole histories, well formed and not, for tests of what is done with them."""

from typing import Any

from hypothesis import strategies as st

Plain = dict[str, Any]


def say(role: str, text: str, **more: Any) -> Plain:
    """A message of plain words."""
    return {"role": role, "content": [{"type": "text", "text": text}], **more}


def ask(*calls: str, **more: Any) -> Plain:
    """An assistant that calls."""
    return {
        "role": "assistant",
        "tool_calls": [{"id": each, "name": "look", "arguments": {"at": each}} for each in calls],
        **more,
    }


def result(call: str, text: str = "seen", **more: Any) -> Plain:
    """What a call came to."""
    return say("tool", text, tool_call_id=call, **more)


sizes = st.one_of(st.integers(1, 60), st.integers(1, 2000), st.integers(8_000, 30_000))
texts = sizes.map(lambda size: ("some words\n" * (size // 11 + 1))[:size])
pins = st.sampled_from([{}] * 9 + [{"metadata": {"pinned": True}}])


@st.composite
def histories(draw: st.DrawFn, whole: bool = False) -> list[Plain]:
    """A thread as it may be found: calls without results, results without calls, ids used again, things in between."""
    found: list[Plain] = [say("system", draw(texts))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["user", "user", "assistant", "calls", "calls", "calls", "system", "stray"]))
        if kind == "calls":
            names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True))
            answered = names if whole else draw(st.lists(st.sampled_from(names), max_size=4))
            between = [] if whole else draw(st.lists(st.just(say("user", "By the way.")), max_size=1))
            found += [
                ask(*names, **draw(pins)),
                *between,
                *(result(each, draw(texts), **draw(pins)) for each in answered),
            ]
        elif kind != "stray":
            found.append(say(kind, draw(texts), **draw(pins)))
        elif not whole:
            found.append(result(draw(st.sampled_from("abcxyz")), "late"))
    return found


def well_paired(messages: tuple[Plain, ...] | list[Plain]) -> bool:
    """Said again, in the plainest way: after calls come their results, one each, and results come nowhere else."""
    rest = list(messages)
    while rest:
        first = rest.pop(0)
        if first["role"] == "tool":
            return False
        for call in first.get("tool_calls", ()):
            if not rest or rest.pop(0).get("tool_call_id") != call["id"]:
                return False
    return True
