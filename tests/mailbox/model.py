"""What a thread should do, said a second time in plain Python: the yardstick of the property test."""

from dataclasses import dataclass, field

WAKES = {"input", "tasks"}
MAX_ATTEMPTS = 5


@dataclass
class Run:
    """A run as the model sees it."""

    priority: int = 128
    status: str = "queued"
    arrival: int | None = None
    start_at: int | None = None
    on_waiting: str = "supersede"
    waiting: str = ""
    wake: int | None = None
    cancel: str = ""
    commits: int = 0
    fence: int = 0
    attempts: int = 0
    released: int = 0
    ticket: str = ""
    termination: str = ""


@dataclass
class Thread:
    """A thread as the model sees it; every verb says what it should answer and does what it should do."""

    runs: dict[str, Run] = field(default_factory=dict)
    open: str = ""
    fence: int = 0
    arrivals: int = 0
    lock: tuple[str, int] | None = None  # worker, lease_until
    mail: list[str] = field(default_factory=list)
    accepted_mail: list[str] = field(default_factory=list)
    seen_mail: int = 0
    now: int = 0

    @property
    def lane(self) -> list[str]:
        queued = [(run.priority, run.arrival, name) for name, run in self.runs.items() if self._in_lane(name)]
        return [name for _, _, name in sorted(queued)]

    def _in_lane(self, name: str) -> bool:
        run = self.runs[name]
        return run.status == "queued" and run.arrival is not None and name != self.open

    @property
    def alive(self) -> bool:
        return self.lock is not None and self.now <= self.lock[1]

    @property
    def busy(self) -> bool:
        if self.open:
            return self.runs[self.open].status in {"queued", "running"}
        return bool(self.lane)

    def owns(self, name: str, fence: int) -> bool:
        run = self.runs[name]
        return run.status == "running" and self.open == name and self.fence == fence

    # -- verbs -----------------------------------------------------------------------------------------------------

    def submit(self, name: str, mode: str, on_waiting: str, priority: int, start_at: int | None) -> str:
        if name in self.runs:
            return "again"
        waits = bool(self.open) and self.runs[self.open].status == "waiting"
        if (self.open or self.lane) and (mode == "reject" or (mode == "enqueue" and waits and on_waiting == "reject")):
            return "thread_busy"
        if mode == "steer" and self.open:
            return "steered"
        if mode in {"interrupt", "rollback"}:
            self.interrupt("rolled_back" if mode == "rollback" else "interrupted")
        self.runs[name] = Run(priority, on_waiting=on_waiting)
        if start_at is not None and start_at > self.now:
            self.runs[name].start_at = start_at
            return "delayed"
        self.admit(name)
        return "queued"

    def admit(self, name: str) -> None:
        run = self.runs[name]
        if self.open and run.on_waiting == "supersede" and self.runs[self.open].status == "waiting":
            self.end(self.open, "cancelled")
        self.arrivals += 1
        run.arrival, run.start_at = self.arrivals, None

    def claim(self, name: str, worker: str, lease: int) -> bool:
        run = self.runs.get(name)
        if run is None or run.status != "queued" or (run.start_at or 0) > self.now:
            return False
        if self.open != name and (self.open or self.lane[:1] != [name]):
            return False
        self.fence = max(self.fence + 1, self.now)
        self.seen_mail = len(self.accepted_mail)
        self.open, self.lock = name, (worker, self.now + lease)
        run.status, run.fence = "running", self.fence
        return True

    def commit(self, name: str, fence: int, number: int) -> str:
        run = self.runs[name]
        if run.fence == fence and number <= run.commits:
            return "again"
        if not self.owns(name, fence):
            return "fence_lost"
        if number != run.commits + 1:
            return "commit_gap"
        run.commits = number
        return "committed"

    def finish(self, name: str, fence: int, number: int, kind: str) -> str:
        outcome = self.commit(name, fence, number)
        run = self.runs[name]
        if outcome == "again":
            return "continue" if run.status == "running" else "again"
        if outcome != "committed":
            return outcome
        if kind == "natural_end" and self.mail and not run.cancel:
            return "continue"
        self.end(name, kind)
        return "finished"

    def suspend(self, name: str, fence: int, number: int, reason: str, wake: int | None, ticket: bool) -> str:
        outcome = self.commit(name, fence, number)
        run = self.runs[name]
        if outcome == "again":
            return "continue" if run.status == "running" else "again"
        if outcome != "committed":
            return outcome
        if ticket:
            run.ticket = "open"
        if run.cancel or (reason in WAKES and self.mail) or run.ticket == "decided":
            return "continue"
        run.status, run.waiting, run.wake, self.lock = "waiting", reason, wake, None
        return "waiting"

    def release(self, name: str, fence: int) -> str:
        run = self.runs[name]
        if run.released == fence:
            return "again"
        if not self.owns(name, fence):
            return "fence_lost"
        run.released, self.lock = fence, None
        if run.cancel:
            self.end(name, "cancelled")
            return "done"
        run.status = "queued"
        return "queued"

    def renew(self, name: str, fence: int, lease: int) -> bool:
        if not self.owns(name, fence):
            return False
        worker = self.lock[0] if self.lock else ""
        self.lock = (worker, self.now + lease)
        return True

    def cancel(self, name: str) -> str:
        run = self.runs[name]
        if run.status == "done":
            return "done"
        return "cancelled" if self.stop(name, "cancelled") else "requested"

    def interrupt(self, code: str) -> None:
        for name, run in self.runs.items():
            if name != self.open and run.status == "queued":
                self.end(name, "cancelled")
        if self.open:
            self.stop(self.open, code)

    def decide(self, name: str, again: bool) -> str:
        run = self.runs[name]
        if again:
            return "again"
        if run.status == "done":
            return "run_done"
        if not run.ticket:
            return "ticket_not_found"
        if run.ticket == "decided":
            return "already_decided"
        run.ticket = "decided"
        if run.status == "waiting":
            run.status, run.wake = "queued", None
        return "accepted"

    def send(self, mail_id: str) -> str:
        if mail_id in self.accepted_mail:
            return "again"
        self.mail.append(mail_id)
        self.accepted_mail.append(mail_id)
        if self.open and self.runs[self.open].status == "waiting" and self.runs[self.open].waiting in WAKES:
            self.runs[self.open].status, self.runs[self.open].wake = "queued", None
        return "accepted"

    def look(self, dead_worker: str) -> str:
        if self.lock and self.lock[0] == dead_worker:
            self.lock = None
        for name, run in list(self.runs.items()):
            if run.start_at is not None and run.start_at <= self.now and run.status == "queued":
                self.admit(name)
            if run.wake is not None and run.wake <= self.now and run.status == "waiting":
                run.status, run.wake = "queued", None
        run_now = self.runs.get(self.open)
        if run_now is None or run_now.status != "running" or self.alive:
            return ""
        self.lock = None
        if run_now.cancel:
            self.end(self.open, "cancelled")
            return ""
        run_now.attempts += 1
        if run_now.attempts < MAX_ATTEMPTS:
            run_now.status = "queued"
            return ""
        dead = self.open
        self.end(dead, "error")
        return dead

    # -- endings ---------------------------------------------------------------------------------------------------

    def stop(self, name: str, code: str) -> bool:
        run = self.runs[name]
        if run.status == "running" and self.alive:
            run.cancel = run.cancel or code
            return False
        self.end(name, "cancelled")
        return True

    def end(self, name: str, kind: str) -> None:
        run = self.runs[name]
        run.status, run.termination, run.wake, run.start_at = "done", kind, None, None
        if self.open == name:
            self.open, self.lock = "", None

    def mail_run(self, name: str) -> None:
        """A run the scripts started for mail nobody was there to read."""
        self.arrivals += 1
        self.seen_mail = len(self.accepted_mail)
        self.runs[name] = Run(arrival=self.arrivals)

    @property
    def needs_mail_run(self) -> bool:
        """Mail that no run was given yet deserves one; what a run was given and left waits for the next."""
        fresh = len(self.accepted_mail) > self.seen_mail
        return not self.open and not self.lane and bool(self.mail) and fresh
