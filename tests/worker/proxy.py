"""A wire to a server that a test may cut, hold or break at the very reply it names."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Trap:
    """Waits for a reply with certain words; `sprung` tells when it came."""

    def __init__(self, words: bytes, hang_up: bool) -> None:
        self.words, self.hang_up = words, hang_up
        self.sprung = threading.Event()


class Proxy:
    """Forwards bytes between clients and a server, until told otherwise."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.server = (parts.hostname, parts.port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}{parts.path}"
        self.flowing = threading.Event()
        self.flowing.set()
        self.traps: list[Trap] = []
        self.sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, words: bytes) -> threading.Event:
        """Keeps back the reply with these words and whatever follows on that connection."""
        return self._trap(Trap(words, hang_up=False))

    def lose(self, words: bytes) -> threading.Event:
        """Breaks the connection when the reply with these words comes: the server did it, the client never knows."""
        return self._trap(Trap(words, hang_up=True))

    def cut(self) -> None:
        """Forwards nothing in either direction; nobody is told."""
        self.flowing.clear()

    def mend(self) -> None:
        """Forwards again, also what was on its way."""
        self.flowing.set()

    def _trap(self, trap: Trap) -> threading.Event:
        self.traps.append(trap)
        return trap.sprung

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.server)
                self.sockets += (client, server)
                for source, target, traps in ((client, server, []), (server, client, self.traps)):
                    threading.Thread(target=self._pump, args=(source, target, traps), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, traps: list[Trap]) -> None:
        before = b""
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                self.flowing.wait()
                # Words may come in two chunks.
                seen, before = before + chunk, chunk[-200:]
                trap = next((each for each in list(traps) if each.words in seen), None)
                if trap:
                    traps.remove(trap)
                    trap.sprung.set()
                    if trap.hang_up:
                        break
                    return
                target.sendall(chunk)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.mend()
        for each in (self.listener, *self.sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
