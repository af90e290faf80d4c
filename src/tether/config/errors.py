"""The one error that users see, a single line that says what, where and how to mend it; and the end
that a signal asks for."""

from __future__ import annotations


class Terminated(SystemExit):
    """A signal asked this process to leave, whatever it was doing; the code is 128 + its number."""


class UserError(ValueError):
    """A mistake in what the user gave, in one line; the command line prints it alone."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))


class SettingError(UserError):
    """A mistake in one setting of a part, which the part finds itself; who reads the part from a
    file says where that stands."""

    def __init__(self, setting: str, why: str) -> None:
        super().__init__(f"{setting}: {why}")
        self.setting, self.why = setting, why


OUT_OF_MEMORY = 3
"""Exit status of a command that ended for want of memory: a study begins the run again where
others shared its device."""


class OutOfMemory(UserError):
    """The device's memory, or the machine's, did not suffice for what the settings ask."""
