"""A trial as Ray Tune runs it. Tune's process is kept for one trial after another, which saves its imports."""

import json
from typing import Any

from ray import tune


class Trial(tune.Trainable):
    """Makes one report of a trial at each step, in this process or in workers of Ray Train.

    `config` holds `leg` (see `train.sweep.session.Leg`), `workers`, `cpus` and `gpus` of each, and `storage`, a folder
    for Ray Train.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Nothing but remember: what takes time, and what may fail, is the trial's first step."""
        self._config = config
        self._crew: Any = None
        self._work: Any = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Turn to another trial in the same process."""
        self._leave()
        self._config = new_config
        return True

    def step(self) -> dict[str, Any]:
        """The next report, as JSON: Tune flattens mappings."""
        if self._work is None:
            self._work = self._begin()
        return {"report": json.dumps(self._work.advance())}

    def cleanup(self) -> None:
        """End the workers."""
        self._leave()
        if self._crew is not None:
            self._crew.close()

    def _begin(self) -> Any:
        from train.sweep.session import Leg, Session

        leg = Leg(**self._config["leg"])
        if self._config["workers"] == 1:
            return Session(leg)
        if self._crew is None:
            from train.sweep.crew import Crew

            parts = {name: self._config[name] for name in ("workers", "cpus", "gpus", "storage")}
            self._crew = Crew(**parts, name=f"crew_{self.trial_id}")
        self._crew.begin(leg)
        return self._crew

    def _leave(self) -> None:
        if self._work is not None and self._work is not self._crew:
            self._work.close()
        self._work = None
