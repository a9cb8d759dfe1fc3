"""The two kinds of expected errors. The commands turn them into one line and an exit status."""


class UserError(ValueError):
    """The user's mistake: one line that names the file, field or option and the remedy. Exit status 2."""


class JobError(RuntimeError):
    """A job that failed through no mistake in its settings: one line that says what and what to do. Exit status 1."""
