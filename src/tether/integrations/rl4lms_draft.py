"""The configuration as it grows, and what became of every key of the old one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["carried", "changed", "none", "ignored"]


@dataclass(frozen=True)
class Note:
    """What became of one key."""

    key: str
    """Dotted path in the RL4LMs configuration."""
    value: Any
    given: bool
    """False: the key is absent, and RL4LMs' default was in force."""
    status: Status
    to: str = ""
    """Dotted path of the setting that it became, several ones with commas."""
    why: str = ""


@dataclass
class Draft:
    """`put` writes settings, `note` says what became of a key, `carry` does both."""

    config: Mapping[str, Any]
    where: str
    settings: dict[str, Any] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    """Dotted path of a setting -> where it comes from."""
    notes: list[Note] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """What else is to be written: ending of the file's name -> its text."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value at a dotted path; `default` where it is absent or null."""
        found = lookup(self.config, key)
        return default if found is None else found

    def given(self, key: str) -> bool:
        return lookup(self.config, key) is not None

    def put(self, setting: str, value: Any, comment: str = "") -> None:
        here = self.settings
        *heads, last = setting.split(".")
        for head in heads:
            here = here.setdefault(head, {})
        here[last] = value
        if comment:
            self.comments[setting] = comment

    def note(
        self, key: str, status: Status, to: str = "", why: str = "", value: Any = None
    ) -> None:
        """value: shown where the key is absent (RL4LMs' default)."""
        given = present(self.config, key)
        shown = lookup(self.config, key) if given else value
        self.notes.append(Note(key, shown, given, status, to, why))

    def carry(
        self,
        key: str,
        setting: str,
        default: Any = None,
        *,
        value: Any = None,
        status: Status = "carried",
        why: str = "",
    ) -> None:
        """The key's value (or RL4LMs' default) as `setting`; `value` where it is converted."""
        old = self.get(key, default)
        new = old if value is None else value
        origin = key if self.given(key) else f"{key}, not given: RL4LMs' default"
        self.put(setting, new, f"{origin} {old}" if new != old else origin)
        self.note(key, status, setting, why, value=old)

    def rest(self, key: str, status: Status, why: str) -> None:
        """Every leaf at or below a key that has no note yet."""
        have = {n.key for n in self.notes}
        for leaf in leaves(self.config):
            if (leaf == key or leaf.startswith(f"{key}.")) and leaf not in have:
                self.note(leaf, status, why=why)


def lookup(config: Any, key: str) -> Any:
    """The value at a dotted path (list positions as numbers), or None."""
    for name in key.split("."):
        if isinstance(config, list) and name.isdigit() and int(name) < len(config):
            config = config[int(name)]
        elif isinstance(config, Mapping):
            config = config.get(name)
        else:
            return None
    return config


def present(config: Any, key: str) -> bool:
    """Does the file hold this key, if only as null?"""
    head, _, last = key.rpartition(".")
    above = lookup(config, head) if head else config
    if isinstance(above, list):
        return last.isdigit() and int(last) < len(above)
    return isinstance(above, Mapping) and last in above


def leaves(config: Any, path: str = "") -> Iterator[str]:
    """Dotted paths of everything that holds no mapping or list of its own."""
    items: list[tuple[str, Any]] = []
    if isinstance(config, Mapping):
        items = [(str(k), v) for k, v in config.items()]
    elif isinstance(config, list):
        items = [(str(i), v) for i, v in enumerate(config)]
    if not items:
        yield path
    for name, value in items:
        yield from leaves(value, f"{path}.{name}" if path else name)
