"""One trial as Ray Tune runs it: the plain training loop, a validation at every report, checkpoints of our own."""

import os
import time
from typing import Any

from ray import tune
from ray.tune.result import DONE


class Trial(tune.Trainable):
    """Trains one setting in its own process; the process is used again for the next trial (`reset_config`).

    `config["setting"]` holds `name`, `recipe` (the trial's resolved mapping), `data`, `report_every_steps` and `values`
    (by dotted key).
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Build the loop of this trial's recipe at step 0."""
        from preprocess.settings import build
        from train.config import PretrainRecipe
        from train.loop import Loop

        setting = config["setting"]
        self.report_every_steps = setting["report_every_steps"]
        self.recipe = build(PretrainRecipe, setting["recipe"], source=setting["name"])
        self.loop = Loop(self.recipe, setting["data"])
        self.seconds = 0.0
        self.characters = 0.0

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start over with another setting in the same process, which saves its imports."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train to the next report and validate at the samples and masks that all trials share."""
        target = min(self.loop.step + self.report_every_steps, self.recipe.train.steps)
        lines: list[Any] = []
        start = time.perf_counter()
        self.loop.train_until(target, lines.append)
        self.seconds += time.perf_counter() - start
        self.characters += sum(line["characters"] for line in lines)
        return {
            "step": self.loop.step,
            "loss": lines[-1]["loss"] if lines else float("nan"),
            **self.loop.validate(),
            "train_seconds": self.seconds,
            "characters_per_second": self.characters / self.seconds if self.seconds else 0.0,
            "parameters": sum(p.numel() for p in self.loop.encoder.parameters()),
            DONE: self.loop.step >= self.recipe.train.steps,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the loop's own checkpoint and the clock of this trial."""
        self.loop.save(os.path.join(checkpoint_dir, "loop"))
        with open(os.path.join(checkpoint_dir, "clock"), "w", encoding="ascii") as file:
            file.write(f"{self.seconds!r} {self.characters!r}")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on where `save_checkpoint` stood."""
        self.loop.restore(os.path.join(checkpoint, "loop"))
        with open(os.path.join(checkpoint, "clock"), encoding="ascii") as file:
            self.seconds, self.characters = map(float, file.read().split())
