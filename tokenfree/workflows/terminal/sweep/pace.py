"""When the events of a sweep were heard in this command, and the time left that follows from it."""

from tokenfree.train.sweep.control.history import Event, History, TrialState
from tokenfree.train.sweep.results.trial_result import is_number


class SweepPace:
    """Hears the events of a sweep, with the second of each; its clock is any that never goes back.

    Args:
        now: when the command began.
    """

    def __init__(self, now: float) -> None:
        self.began = now
        self._origin: float | None = None  # when the first trial of this command began to train
        self._before = 0.0  # trials, and parts of trials, that earlier, killed commands had done
        self._heard: dict[str, float] = {}  # by trial, of its last event

    def hear(self, event: Event, history: History, now: float) -> None:
        """Take in an event, with what is known after it."""
        if event["event"] == "start" and self._origin is None:
            self._before = _done(history)
        if "trial" in event:
            self._heard[event["trial"]] = now
        if self._origin is None and event["event"] in ("report", "failure"):  # the start of workers is no part of it
            used = history.trials[event["trial"]].last.get("train_seconds", 0.0)
            self._origin = max(self.began, now - used)

    def trial_left(self, trial: TrialState, now: float) -> float | None:
        """Seconds until the last report of a trial that trains, if it is not stopped before; None where unknown."""
        used = trial.last.get("train_seconds")
        if trial.state != "running" or not is_number(used):
            return None
        left = used / trial.report_number * (trial.last_report - trial.report_number)
        return max(0.0, left - (now - self._heard.get(trial.name, now)))

    def left(self, history: History, now: float) -> float | None:
        """Seconds until the last trial ends, at the pace of this command; None where unknown or nothing is left."""
        done = _done(history)
        if self._origin is None or done <= self._before or done >= history.total:
            return None
        return (now - self._origin) / (done - self._before) * (history.total - done)


def _done(history: History) -> float:
    """How many trials have ended, and the parts done of those that have not."""
    return sum(1.0 if trial.ended else trial.report_number / trial.last_report for trial in history.trials.values())
