"""A trial as Ray Tune runs it. Tune's process is kept for one trial after another, which saves its imports."""

import contextlib
import json
from typing import Any

from ray import tune

from tokenfree.train.ray.cluster import ended_where_cut_off


class Trial(tune.Trainable):
    """Makes one report of a trial at each step, in this process or in workers of Ray Train.

    `config` holds `segment` (see `trial_session.TrialSegment`), `workers`, `cpus` and `gpus` of each, and `storage`, a
    folder for Ray Train.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Remember, and end where this machine is cut off: what takes time, and may fail, is the trial's first step."""
        self._config = config
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(ended_where_cut_off())
        self._group: Any = None
        self._work: Any = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Turn to another trial in the same process."""
        self._leave()
        self._config = new_config
        return True

    def step(self) -> dict[str, Any]:
        """The next report of the trial, as JSON under `report`: Tune flattens mappings.

        Raises:
            Exception: what the trial raised; Tune hands it on.
        """
        if self._work is None:
            self._work = self._begin()
        return {"report": json.dumps(self._work.advance())}

    def cleanup(self) -> None:
        """End the workers."""
        self._leave()
        if self._group is not None:
            self._group.close()
        self._stack.close()

    def _begin(self) -> Any:
        from tokenfree.train.sweep.trials.trial_session import TrialSegment, TrialSession

        segment = TrialSegment(**self._config["segment"])
        if self._config["workers"] == 1:
            session = TrialSession(segment)
            session.open()
            return session
        if self._group is None:
            from tokenfree.train.sweep.trials.worker_group import WorkerGroup

            parts = {name: self._config[name] for name in ("workers", "cpus", "gpus", "storage")}
            self._group = WorkerGroup(**parts, name=f"workers_{self.trial_id}")
        self._group.begin(segment)
        return self._group

    def _leave(self) -> None:
        if self._work is not None and self._work is not self._group:
            self._work.close()
        self._work = None
