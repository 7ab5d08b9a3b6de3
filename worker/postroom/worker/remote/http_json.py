"""The HTTP+JSON binding: a verb is a path."""

from typing import Any, Final
from urllib.parse import quote, urlencode

from postroom.mailbox.backends import Card
from postroom.worker.remote.binding import CANCEL, GET, LACKING, LIST, SEND, SUBSCRIBE, Ask, Plain, Refused

PATHS: Final = {
    SEND: ("POST", "/message:send"),
    GET: ("GET", "/tasks/{id}"),
    LIST: ("GET", "/tasks"),
    SUBSCRIBE: ("POST", "/tasks/{id}:subscribe"),
    CANCEL: ("POST", "/tasks/{id}:cancel"),
}


class HttpJson:
    """Writes and reads it."""

    def ask(self, card: Card, verb: str, params: Plain) -> Ask:
        """A path under the agent's address; what is not in it is the body, or the query where there is no body."""
        method, path = PATHS[verb]
        rest = {name: value for name, value in params.items() if f"{{{name}}}" not in path}
        tenant = f"/{quote(card.tenant, safe='')}" if card.tenant else ""
        found = path.format_map({name: quote(str(value), safe="") for name, value in params.items()})
        url = f"{card.url.rstrip('/')}{tenant}{found}"
        if method == "POST":
            return Ask(method, url, rest)
        return Ask(method, f"{url}?{urlencode(rest)}" if rest else url)

    def refused(self, status: int, body: Any) -> Refused | None:
        """A status that says so, or in the middle of a stream an error with a status of its own."""
        error = body.get("error") if isinstance(body, dict) else None
        if status < 300 and not isinstance(error, dict):
            return None
        code = status if status >= 300 else (error or {}).get("code")
        known = code if isinstance(code, int) and 300 <= code < 600 else 500
        return Refused(known, known in LACKING or "UNSUPPORTED_OPERATION" in _reasons(error))

    def result(self, body: Any) -> Plain:
        """The body itself."""
        return dict(body)


def _reasons(error: Any) -> list[Any]:
    details = error.get("details") if isinstance(error, dict) else None
    return [each.get("reason") for each in details or () if isinstance(each, dict)]
