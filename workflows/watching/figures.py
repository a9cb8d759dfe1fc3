"""The figures of a command that works, gathered from what its live line is told: for Prometheus and for notices."""

from __future__ import annotations

import collections
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

_RECENT = 20  # steps over which speeds are averaged


class Figures(Collector):
    """What is known of a command; one thread tells it, another may ask at the same time."""

    @abstractmethod
    def hear(self, *news: Any) -> bool:
        """Take what the command tells its live line; whether its work went on."""
        ...

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """How far it is, for JSON."""
        ...


class TrainingFigures(Figures):
    """Of `pretrain` and `finetune`; `steps` of the whole run."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._recent: collections.deque[Mapping[str, Any]] = collections.deque(maxlen=_RECENT)
        self._validation: float | None = None
        self._restarts = 0
        self._since = time.monotonic()

    def hear(self, *news: Any) -> bool:
        """Take a line of metrics.jsonl or events.jsonl; see `Figures.hear`."""
        (line,) = news
        if "event" in line:
            self._restarts += line["event"] == "worker_lost"
            return False
        self._since = time.monotonic()
        if "loss" in line:
            self._recent.append(line)
        self._validation = line.get("validation_loss", self._validation)
        return True

    def facts(self) -> Mapping[str, Any]:
        """See `Figures.facts`."""
        recent = list(self._recent)
        known = {"step": recent[-1]["step"], "loss": recent[-1]["loss"]} if recent else {}
        validation = {} if self._validation is None else {"validation_loss": self._validation}
        return {**known, "steps": self._steps, **validation, "worker_restarts": self._restarts}

    def collect(self) -> Iterator[Metric]:
        """The figures for Prometheus."""
        recent, name = list(self._recent), "tokenfree_train"
        yield _gauge(f"{name}_steps", "Steps of the whole run", self._steps)
        if recent:
            last, seconds = recent[-1], sum(line["seconds"] for line in recent)
            characters = sum(line["characters"] for line in recent)
            utilisation = sum(line["utilisation"] for line in recent) / len(recent)
            yield _gauge(f"{name}_step", "Steps done", last["step"])
            yield _gauge(f"{name}_loss", "Loss of the last step, nats per target", last["loss"])
            yield _gauge(f"{name}_characters_per_second", f"Mean of {_RECENT} steps", characters / seconds)
            yield _gauge(f"{name}_utilisation_ratio", "Share of the device's measured peak", utilisation)
        if self._validation is not None:
            yield _gauge(f"{name}_validation_loss", "Last held-out loss, nats per target", self._validation)
        yield CounterMetricFamily(
            f"{name}_worker_restarts", "Workers lost and started again by this command", value=self._restarts
        )
        since = time.monotonic() - self._since
        yield _gauge(f"{name}_seconds_since_last_step", "Since a step or validation, or the start", since)


class PreprocessFigures(Figures):
    """Of `preprocess`."""

    def __init__(self) -> None:
        self._last: Any = None
        self._parts = {"splits": (0, 0), "shards": (0, 0)}  # done, and in all
        self._since = time.monotonic()

    def hear(self, *news: Any) -> bool:
        """Take a `tokenfree.pipelines.progress.Progress`; see `Figures.hear`."""
        (progress,) = news
        if progress == self._last:
            return False
        self._since = time.monotonic()
        self._last = progress
        if progress.stage in ("read", "vocabulary"):
            self._parts = {**self._parts, "splits": (progress.done, progress.total)}
        else:
            total = self._parts["splits"][1]  # they are all read by now
            self._parts = {"splits": (total, total), "shards": (progress.done, progress.total)}
        return True

    def facts(self) -> Mapping[str, Any]:
        """See `Figures.facts`."""
        if self._last is None:
            return {}
        last = self._last
        return {"stage": last.stage, "done": last.done, "total": last.total, "characters": last.characters}

    def collect(self) -> Iterator[Metric]:
        """The figures for Prometheus."""
        last, name = self._last, "tokenfree_preprocess"
        for noun, (done, total) in self._parts.items():
            yield _gauge(f"{name}_{noun}_done", f"{noun.capitalize()} done", done)
            yield _gauge(f"{name}_{noun}", f"{noun.capitalize()} in all, 0 until that is known", total)
        if last is not None:
            yield _gauge(f"{name}_characters", "Of text: read, later of the shards built", last.characters)
            yield _gauge(f"{name}_failed_pages", "Pages that failed", last.failed)
            dropped = GaugeMetricFamily(f"{name}_dropped_pages", "Pages left out, by reason", labels=["reason"])
            for reason, count in sorted(last.dropped.items()):
                dropped.add_metric([reason], count)
            yield dropped
        since = time.monotonic() - self._since
        yield _gauge(f"{name}_seconds_since_last_progress", "Since anything was committed, or the start", since)


class SweepFigures(Figures):
    """Of `sweep`: trials by their state, such as `finished`."""

    def __init__(self) -> None:
        self._trials: Mapping[str, int] = {}

    def hear(self, *news: Any) -> bool:
        """Take an event of the sweep and the `History` after it; see `Figures.hear`."""
        _, history = news
        self._trials = collections.Counter(trial.state for trial in history.trials.values())
        return True

    def facts(self) -> Mapping[str, Any]:
        """See `Figures.facts`."""
        return {f"trials_{state}": count for state, count in sorted(self._trials.items())}

    def collect(self) -> Iterator[Metric]:
        """None: each trial is a run of its own."""
        return iter(())


def _gauge(name: str, help: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help, value=value)
