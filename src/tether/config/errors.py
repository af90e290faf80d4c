"""The one error that users see: a single line that says what, where and how to mend it."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in what the user gave, in one line; the command line prints it alone."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))
