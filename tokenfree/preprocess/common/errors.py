"""The two kinds of expected errors. The commands turn them into one line and an exit status."""

from collections.abc import Sequence


class UserError(ValueError):
    """The user's mistake: one line that names the file, field or option and the remedy. Exit status 2.

    Attributes:
        source: what the problems are of, or the whole message where there are none.
        problems: of settings, each with its key. The error's text has all of them in one line, a command prints a line
            for each.
    """

    def __init__(self, source: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(": ".join(filter(None, (source, "; ".join(problems)))))
        self.source, self.problems = source, tuple(problems)


class JobError(RuntimeError):
    """A job that failed through no mistake in its settings: one line that says what and what to do. Exit status 1."""


class TakenOverError(JobError):
    """Another command goes on with the job: what this one would write is not wanted any more."""


class StoppedError(JobError):
    """A job that a signal asked to stop, and that did so in order: the same command goes on from there."""
