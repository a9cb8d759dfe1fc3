"""When the results of a page were made, by which versions, on which machines."""

from collections.abc import Sequence
from datetime import datetime, timezone

from tokenfree.workflows.report.attempts import NOT_RECORDED, Attempt, attempts_of, machine_line, time_of, versions_of
from tokenfree.workflows.report.load import RunRecord, SweepRecord

MOST = 3  # different versions or machines that are named


def made_with(runs: Sequence[RunRecord], sweeps: Sequence[SweepRecord]) -> list[tuple[str, str]]:
    """(what, value) of the dates, versions and machines of all runs and sweeps; none for a page about data alone.

    The dates are those of the results, so that the same files give the same page.
    """
    if not runs and not sweeps:
        return []
    attempts = [attempts_of(run.config) for run in runs] + [list(sweep.attempts) for sweep in sweeps]
    all_known = all(attempts)
    flat = [attempt for each in attempts for attempt in each]
    return [
        ("Trained", _dates(runs, flat)),
        ("Versions", _kinds([versions_of(attempt) for attempt in flat], all_known)),
        ("Machine", _kinds([machine_line(attempt.get("machine") or {}) for attempt in flat], all_known)),
    ]


def _dates(runs: Sequence[RunRecord], attempts: Sequence[Attempt]) -> str:
    times = [time_of(attempt) for attempt in attempts if attempt.get("time")]
    for run in runs:
        seconds = [event["time"] for event in run.events if event.get("time") is not None]
        times += [datetime.fromtimestamp(each, timezone.utc).strftime("%Y-%m-%d %H:%M") for each in seconds]
    if not times:
        return NOT_RECORDED
    first, last = min(times), max(times)
    return f"{first} UTC" if first == last else f"{first} to {last} UTC"


def _kinds(texts: Sequence[str], all_known: bool) -> str:
    kinds = list(dict.fromkeys(texts))
    shown = kinds[:MOST] + ([f"{len(kinds) - MOST} others"] if len(kinds) > MOST else [])
    if not all_known:
        shown.append(f"{NOT_RECORDED} for some" if kinds else NOT_RECORDED)
    return "; ".join(shown)
