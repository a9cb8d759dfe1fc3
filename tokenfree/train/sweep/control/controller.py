"""Leads a sweep: says which trial is next and whether one goes on, and writes down everything that happens.

It knows trials by name and nothing of Ray. What runs at a time is a segment: a trial from where it stands to where it
ends, waits or fails. After a kill the journal and the trials' own checkpoints are all that is needed.
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tokenfree.train.sweep.control.history import Event, Exploit, History, Report, TrialState, Verdict
from tokenfree.train.sweep.control.journal import JOURNAL, Journal, replayed
from tokenfree.train.sweep.control.proposals import Plan, Proposer
from tokenfree.train.sweep.control.slots import Scheduler
from tokenfree.train.sweep.space.knobs import Values

Progress = Callable[[Event, History], None]  # hears of every event, with all that is known after it


class SweepController:
    """The course of one sweep in the folder `folder`; `start` begins it or goes on with it.

    Args:
        proposer: knows the sweep and finds settings.
        plan: the settings known before the start.
        folder: holds the journal and, in trials/NAME/, the trials.
        concurrent: trials side by side.
        progress: hears of every event from `start` on.
    """

    def __init__(
        self, proposer: Proposer, plan: Plan, folder: Path, concurrent: int, progress: Progress | None = None
    ) -> None:
        self.sweep = proposer.sweep
        self.history = History(self.sweep.seeds, self.sweep.reports, self.sweep.quality)
        self._scheduler: Scheduler = self.sweep.scheduler
        self._proposer, self._plan, self._concurrent, self._progress = proposer, plan, concurrent, progress
        self._journal = Journal(folder / JOURNAL)
        self._trials = folder / "trials"

    def start(self) -> None:
        """Take in what earlier commands have written, then begin or go on.

        Raises:
            UserError: the journal is damaged.
        """
        self.history = replayed(self.history, self._journal.open(), self._journal.path)
        self.restart()
        known = [values for values, _ in self.history.skipped]
        self._skip([(values, reasons) for values, reasons in self._plan.impossible if values not in known])

    def restart(self) -> None:
        """All segments are over, by no fault of their trials, which go on from their checkpoints."""
        self._write({"event": "start", "settings": self._plan.num_settings})

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def folder(self, trial: str) -> Path:
        """Of a trial: its checkpoints and its lock."""
        return self._trials / trial

    def next_segment(self) -> TrialState | None:
        """A trial to run now, from where it stands; None where none can begin at the moment. It then counts as running.

        `history.all_ended` tells whether there will be another.
        """
        self._settle()
        if sum(trial.running for trial in self.history.trials.values()) >= self._concurrent:
            return None
        name = self._ready() or (self._ready() if self._propose() else None)
        if name is None:
            return None
        self._write({"event": "begin", "trial": name})
        return self.history.trials[name]

    def report(self, name: str, report: Report) -> bool:
        """Take in a report of a running trial; whether it goes straight on. If not, its segment is over."""
        trial = self.history.trials[name]
        if trial.running and report["report"] > trial.report_number:  # one that is known already changes nothing
            event = {"event": "report", "trial": name, "verdict": "go", "report": report}
            verdict = self._verdict(self.history.after(event), name)
            # A takeover happens between segments, when all others that it depends on have come as far.
            self._write({**event, "verdict": "wait" if verdict == "exploit" else verdict})
            self._clean_up(name)
        return self.history.trials[name].running

    def failed(self, name: str, error: str) -> None:
        """A running trial failed; its segment is over. It gets another one unless it failed before."""
        if self.history.trials[name].running:
            self._write({"event": "failure", "trial": name, "error": error})
            self._clean_up(name)

    def _verdict(self, history: History, name: str) -> Verdict:
        trial = history.trials[name]
        return "go" if trial.ended else self._scheduler.verdict(history, trial, trial.last)

    def _settle(self) -> None:
        """Decide on the trials that wait for others: takeovers first, for the others may wait for them."""
        waiting = [trial.name for trial in self.history.trials.values() if trial.verdict == "wait" and not trial.ended]
        for name in waiting:
            if self._verdict(self.history, name) == "exploit":
                self._exploit(self._scheduler.exploit(self.sweep, self.history, self.history.trials[name]))
        for name in waiting:
            verdict = self._verdict(self.history, name)
            if verdict != "wait":
                self._write({"event": "verdict", "trial": name, "verdict": verdict})
                self._clean_up(name)

    def _exploit(self, exploit: Exploit) -> None:
        """Put the donor's checkpoints in place of the trial's own; the event says that it is done."""
        own, new = self.folder(exploit.trial) / "checkpoints", self.folder(exploit.trial) / "checkpoints.new"
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(self.folder(exploit.donor) / "checkpoints", new)
        shutil.rmtree(own, ignore_errors=True)
        new.rename(own)
        event = {"event": "exploit", "trial": exploit.trial, "donor": exploit.donor}
        self._write({**event, "values": exploit.values, "report": exploit.report_number})

    def _ready(self) -> str | None:
        """The first trial that may train and does not."""
        for trial in self.history.trials.values():
            if trial.verdict == "go" and not trial.ended and not trial.running:
                return trial.name
        return None

    def _propose(self) -> bool:
        """Take up the next setting; whether there was one."""
        if self.history.all_proposed:
            return False
        number = len(self.history.proposed)
        if number < len(self._plan.settings):
            values = self._plan.settings[number]
        else:
            values, skipped = self._proposer.next(self.history)
            self._skip(skipped)
        if values is None:
            self._write({"event": "exhausted"})
            return False
        self._write({"event": "propose", "setting": number, "values": values})
        return True

    def _skip(self, skipped: Iterable[tuple[Values, Sequence[str]]]) -> None:
        for values, reasons in skipped:
            self._write({"event": "skip", "values": values, "reasons": list(reasons)})

    def _clean_up(self, name: str) -> None:
        """Remove the checkpoints of a trial from which nobody will go on."""
        if self.history.trials[name].state in ("stopped", "failed"):
            shutil.rmtree(self.folder(name), ignore_errors=True)

    def _write(self, event: Event) -> None:
        self._journal.append(event)
        self.history = self.history.after(event)
        if self._progress is not None:
            self._progress(event, self.history)
