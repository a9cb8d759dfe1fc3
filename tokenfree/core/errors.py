"""Expected errors, and the logger of warnings."""

import logging
import signal
from collections.abc import Sequence

logger = logging.getLogger("tokenfree")


class UserError(ValueError):
    """A mistake of the user: one line that names the file, field or option, and the fix. Exit status 2."""


class SettingsError(UserError):
    """The `problems` of the settings in `source`, one line each. The message is one line too."""

    def __init__(self, source: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(": ".join(filter(None, (source, "; ".join(problems)))))
        self.source, self.problems = source, tuple(problems)


class JobError(RuntimeError):
    """A failure of a job without a mistake in its settings: one line with the cause and what to do.

    Exit status 1.
    """


class TakenOverError(JobError):
    """Another command has taken over the job, so this one must not write any more."""


class StoppedError(JobError):
    """A job that stopped in order for `reason`, such as a signal's name. The same command resumes it."""

    def __init__(self, *values: object, reason: str = "") -> None:
        super().__init__(*values)
        self.reason = reason

    @property
    def exit_status(self) -> int:
        return 128 + signal.Signals[self.reason] if self.reason in signal.Signals.__members__ else 1


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
