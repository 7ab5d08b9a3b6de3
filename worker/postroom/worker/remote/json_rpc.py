"""The JSON-RPC binding: a verb is a method, and every answer is a 200."""

from typing import Any, Final

from postroom.mailbox.backends import Card
from postroom.worker.remote.binding import CANCEL, GET, LACKING, LIST, SEND, SUBSCRIBE, Ask, Plain, Refused

METHODS: Final = {
    SEND: "SendMessage",
    GET: "GetTask",
    LIST: "ListTasks",
    SUBSCRIBE: "SubscribeToTask",
    CANCEL: "CancelTask",
}
_NO_METHOD, _UNSUPPORTED = -32601, -32004
# What codes are over HTTP; the rest is a fault of the agent's own.
STATUS: Final = {
    -32700: 400,
    -32600: 400,
    _NO_METHOD: 501,
    -32602: 400,
    -32001: 404,
    -32002: 400,
    -32003: 400,
    _UNSUPPORTED: 400,
    -32005: 400,
    -32007: 400,
    -32008: 400,
    -32009: 400,
}


class JsonRpc:
    """Writes and reads it."""

    def ask(self, card: Card, verb: str, params: Plain) -> Ask:
        """One address for everything."""
        given = {**params, "tenant": card.tenant} if card.tenant else params
        return Ask("POST", card.url, {"jsonrpc": "2.0", "id": 1, "method": METHODS[verb], "params": given})

    def refused(self, status: int, body: Any) -> Refused | None:
        """An error in the answer, or a status for those who did not even get to the method."""
        if status >= 300:
            return Refused(status, status in LACKING)
        error = body.get("error") if isinstance(body, dict) else None
        if error is None:
            return None
        code = error.get("code") if isinstance(error, dict) else None
        return Refused(STATUS.get(code or 0, 500), code in (_NO_METHOD, _UNSUPPORTED))

    def result(self, body: Any) -> Plain:
        """What stands for the result."""
        return dict(body["result"])
