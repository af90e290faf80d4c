"""Commands whose second word says what: `tether grue run`, `tether reward-model average`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tether.cli.helping import console, print_pairs
from tether.config.nearest import unknown

Actions = Mapping[str, tuple[Callable[[list[str]], int], str]]
"""name -> what it does with the further words, and a line about it."""


def act(command: str, actions: Actions, words: list[str]) -> int:
    """Hand the words to the action that the first of them names; without one, list them all.

    Raises UserError for an unknown action, with the nearest name.
    """
    if not words or words[0] in ("-h", "--help"):
        out = console()
        out.print(f"usage: tether {command} ACTION [...]     ACTION --help says more\n")
        print_pairs(out, [(name, summary) for name, (_, summary) in actions.items()])
        return 0
    action, *rest = words
    if action not in actions:
        raise unknown("action", action, actions, f"tether {command}")
    return actions[action][0](rest)
