"""Plugin state: typed keys, immutable snapshots, and updates that are applied all together or not at all.

A value is plain data (what JSON can say). Nobody changes a value in place: hooks and tools see a snapshot and return
updates, and only `State.apply` makes a new one of them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

from postroom.worker.core.errors import KeyTaken, MergeConflict, RevisionConflict, UnknownKey

V = TypeVar("V")
U = TypeVar("U")


class Scope(StrEnum):
    """How long a value lives: with its run, or with its thread."""

    RUN = "run"
    THREAD = "thread"


class Merge(StrEnum):
    """Whether updates made side by side may touch the same key."""

    EXCLUSIVE = "exclusive"
    COMMUTATIVE = "commutative"


def _replaced(_: Any, update: Any) -> Any:
    return update


@dataclass(frozen=True, slots=True, eq=False)
class StateKey(Generic[V, U]):
    """A named place for a value; `apply` makes the next value from the present one and an update."""

    name: str
    initial: V
    apply: Callable[[V, U], V] = _replaced
    scope: Scope = Scope.RUN
    merge: Merge = Merge.EXCLUSIVE
    persistent: bool = True

    def update(self, update: U) -> "Update":
        """A change to this key, to be returned by a hook or a tool."""
        return Update(self.name, update)


@dataclass(frozen=True, slots=True)
class Update:
    """One change; plain data, so that it can be journaled with the call that made it."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class State:
    """A snapshot: the registered keys, the values that differ from their initial ones, and how often it has changed."""

    keys: Mapping[str, StateKey[Any, Any]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 0

    def __getitem__(self, key: StateKey[V, Any]) -> V:
        if key.name not in self.keys:
            raise UnknownKey(f"state key {key.name!r} is not registered; a plugin must register it")
        found: V = self.values.get(key.name, key.initial)
        return found

    def apply(self, updates: Iterable[Update], base_revision: int | None = None) -> "State":
        """The state after all updates, or an error and nothing changed."""
        if base_revision is not None and base_revision != self.revision:
            raise RevisionConflict(f"state is at revision {self.revision}, the update was made for {base_revision}")
        values = dict(self.values)
        touched = False
        for update in updates:
            key = self.keys.get(update.key)
            if key is None:
                raise UnknownKey(f"state key {update.key!r} is not registered; a plugin must register it")
            values[key.name] = key.apply(values.get(key.name, key.initial), update.value)
            touched = True
        return replace(self, values=values, revision=self.revision + 1) if touched else self

    def register(self, keys: Iterable[StateKey[Any, Any]]) -> "State":
        """The state that knows these keys too; the same key again is fine, another one of its name is not."""
        known = dict(self.keys)
        for key in keys:
            if known.setdefault(key.name, key) is not key:
                raise KeyTaken(f"state key {key.name!r} is registered twice")
        return replace(self, keys=known)

    def changed_since(self, earlier: "State", scope: Scope) -> dict[str, Any]:
        """The persistent values of a scope that an earlier snapshot did not have."""
        if self.values is earlier.values:
            return {}
        return {
            name: value
            for name, value in self.values.items()
            if self.keys[name].persistent
            and self.keys[name].scope is scope
            and (name not in earlier.values or earlier.values[name] != value)
        }


def exclusive(state: State, updates: Iterable[Update]) -> frozenset[str]:
    """The keys that no other batch may touch at the same time."""
    return frozenset(
        update.key
        for update in updates
        if update.key not in state.keys or state.keys[update.key].merge is Merge.EXCLUSIVE
    )


def merged(state: State, batches: Iterable[Iterable[Update]]) -> tuple[Update, ...]:
    """Updates made side by side as one, in the given order; two that touch one exclusive key are a conflict."""
    taken: set[str] = set()
    together: list[Update] = []
    for batch in batches:
        updates = tuple(batch)
        mine = exclusive(state, updates)
        if clash := sorted(taken & mine):
            raise MergeConflict(f"state key {clash[0]!r} is exclusive and was changed by two at the same time")
        taken |= mine
        together += updates
    return tuple(together)
