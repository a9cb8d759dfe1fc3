"""Leads a sweep: says which trial is next and whether one goes on, and writes down all that this depends on.

It knows trials by name and nothing of Ray. What runs at a time is a leg: a trial from where it stands to where it ends,
waits or fails. After a kill the journal and the trials' own checkpoints are all that is needed.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from train.sweep.history import Event, History, Record, Verdict
from train.sweep.journal import Journal
from train.sweep.proposals import Plan, Proposer
from train.sweep.schedulers.base import Exploit

Tell = Callable[[Mapping[str, Any]], None]


class Conductor:
    """The course of one sweep in the folder `folder`.

    Args:
        proposer: knows the sweep and finds settings.
        plan: the settings known before the start.
        folder: holds journal.jsonl and, in trials/NAME/, the trials.
        concurrent: trials side by side.
        tell: hears of every report and of the end of every trial; see `train.sweep.results.note_progress`.
    """

    def __init__(self, proposer: Proposer, plan: Plan, folder: Path, concurrent: int, tell: Tell) -> None:
        sweep = self.sweep = proposer.sweep
        self._proposer, self._plan, self._concurrent, self._tell = proposer, plan, concurrent, tell
        self._trials = folder / "trials"
        self._running: set[str] = set()
        self.history = History(settings=plan.num_settings, seeds=sweep.seeds, reports=sweep.reports)
        self._journal = Journal(folder / "journal.jsonl", self.history.apply)
        if not self.history.skipped:
            for values, reasons in plan.impossible:
                self._write({"event": "skip", "values": values, "reasons": reasons})

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def folder(self, trial: str) -> Path:
        """Of a trial: its checkpoints and its lock."""
        return self._trials / trial

    def next_leg(self) -> Record | None:
        """A trial to run now, from where it stands; None where none can begin at the moment. It then counts as running.

        `all_ended` tells whether there will be another.
        """
        self._settle()
        if len(self._running) >= self._concurrent:
            return None
        trial = self._ready() or (self._ready() if self._propose() else None)
        if trial is not None:
            self._running.add(trial.name)
            self._announce("begin", trial, trial.reports[-1] if trial.reports else {})
        return trial

    @property
    def all_ended(self) -> bool:
        """Whether every trial has ended and no more are to come."""
        return self._all_proposed and all(trial.ended for trial in self.history.trials.values())

    def report(self, name: str, report: dict[str, Any]) -> bool:
        """Take in a report of a running trial; whether it goes straight on. If not, its leg is over."""
        trial = self.history.trials[name]
        if report["report"] > trial.place:  # after a kill a trial may repeat one that is known
            self._write({"event": "report", "trial": name, "verdict": self._judge(trial, report), "report": report})
            self._announce("report", trial, report)
        goes_on = trial.state == "running" and trial.verdict == "go"
        if not goes_on:
            self._running.discard(name)
            self._end(trial)
        return goes_on

    def failed(self, name: str, error: str) -> None:
        """A running trial failed; its leg is over. It gets another one unless it failed before."""
        trial = self.history.trials[name]
        if name not in self._running:
            return  # it was over already
        self._write({"event": "failure", "trial": name, "error": error})
        self._running.discard(name)
        self._end(trial)

    def interrupted(self) -> None:
        """All legs are over, by no fault of their trials, which go on from their checkpoints."""
        self._running.clear()

    def _judge(self, trial: Record, report: dict[str, Any]) -> Verdict:
        """The verdict on a new report, which is written down together with it."""
        trial.reports.append(report)
        try:
            return self.sweep.scheduler.verdict(self.history, trial) if trial.state == "running" else "go"
        finally:
            trial.reports.pop()

    def _settle(self) -> None:
        """Decide on the trials that wait for others."""
        scheduler = self.sweep.scheduler
        for exploit in scheduler.exploits(self.history, self.sweep):
            self._exploit(exploit)
        for trial in list(self.history.trials.values()):
            if trial.verdict == "wait" and not trial.ended:
                verdict = scheduler.verdict(self.history, trial)
                if verdict != "wait":
                    self._write({"event": "verdict", "trial": trial.name, "verdict": verdict})
                    self._end(trial)

    def _exploit(self, exploit: Exploit) -> None:
        """Put the donor's checkpoints in place of the trial's own; the event says that it is done."""
        own, new = self.folder(exploit.trial) / "checkpoints", self.folder(exploit.trial) / "checkpoints.new"
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(self.folder(exploit.donor) / "checkpoints", new)
        shutil.rmtree(own, ignore_errors=True)
        new.rename(own)
        event = {"event": "exploit", "trial": exploit.trial, "donor": exploit.donor}
        self._write({**event, "values": exploit.values, "report": exploit.place})

    def _ready(self) -> Record | None:
        return next(
            (
                trial
                for trial in self.history.trials.values()
                if not trial.ended and trial.verdict == "go" and trial.name not in self._running
            ),
            None,
        )

    @property
    def _all_proposed(self) -> bool:
        return len(self.history.trials) >= self.history.total

    def _propose(self) -> bool:
        """Take up the next setting; whether there was one."""
        if self._all_proposed:
            return False
        number = len(self.history.proposed)
        values: dict[str, Any] | None = None
        if number < len(self._plan.settings):
            values = self._plan.settings[number]
        else:
            values, skipped = self._proposer.next(self.history)
            for impossible, reasons in skipped:
                self._write({"event": "skip", "values": impossible, "reasons": reasons})
        if values is None:  # the space holds no more settings that can be run
            self.history.total = len(self.history.trials)
            return False
        self._write({"event": "propose", "setting": number, "values": values})
        for trial in self.history.settings()[number]:
            self._announce("waiting", trial, {})
        return True

    def _end(self, trial: Record) -> None:
        if not trial.ended:
            return
        if trial.state != "finished":  # nobody goes on from those
            shutil.rmtree(self.folder(trial.name), ignore_errors=True)
        self._announce("error" if trial.state == "failed" else "end", trial, trial.reports[-1] if trial.reports else {})

    def _announce(self, event: str, trial: Record, report: Mapping[str, Any]) -> None:
        state = trial.state if trial.reports or trial.ended or trial.name in self._running else "waiting"
        told = {
            **report,
            "event": event,
            "trial": trial.name,
            "values": trial.values,
            "setting": trial.setting,
            "seed": trial.seed,
            "state": state,
            "ended": sum(other.ended for other in self.history.trials.values()),
            "trials": self.history.total,
        }
        self._tell({**told, "error": trial.error} if trial.error else told)

    def _write(self, event: Event) -> None:
        self._journal.append(event)
