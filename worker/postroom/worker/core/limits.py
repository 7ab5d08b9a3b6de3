"""How much of a text is shown: limits in characters and lines, and the note about what is missing keeps to them."""


def cut(text: str, limit: int | None, lines: int | None = None) -> tuple[str, bool]:
    """The beginning of a text within its limits (None is no limit), and whether anything is missing.

    A text that was cut says how long it was; where not even that note fits, it is just short.
    """
    limit = None if limit is None else max(limit, 0)
    if (limit is None or len(text) <= limit) and (lines is None or text.count("\n") < max(lines, 1)):
        return text, False
    note = f"[cut: {len(text)} characters in all]"
    kept = text[:limit]
    if lines is not None:
        kept = "\n".join(kept.split("\n", max(lines - 1, 0))[: max(lines - 1, 0)])
    if limit is not None and len(kept) + 1 + len(note) > limit:
        if limit < len(note):
            return kept, True
        kept = kept[: max(limit - len(note) - 1, 0)]
    return (f"{kept}\n{note}" if kept else note), True
