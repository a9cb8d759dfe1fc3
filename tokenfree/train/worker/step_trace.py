"""A Chrome trace of a few steps of training, for chrome://tracing or ui.perfetto.dev."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import torch
from torch.profiler import ProfilerActivity, profile, schedule

UNTRACED, STEPS = 2, 3  # the first steps after a start are slower than others

OnWritten = Callable[[Path], None]


class StepTrace:
    """Writes `<folder>/steps_00000003_00000005.json`: `STEPS` steps, after the first `UNTRACED` of the `with` block.

    A block with fewer steps gives a trace of those that came after the first ones, or none.

    Args:
        step: the optimizer steps that were done before the block.
        on_written: gets the path of the trace.
    """

    def __init__(self, folder: Path, *, step: int, on_written: OnWritten) -> None:
        self._folder, self._step, self._first, self._on_written = folder, step, step + UNTRACED + 1, on_written
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        self._profile = profile(
            activities=activities,
            schedule=schedule(wait=UNTRACED - 1, warmup=1, active=STEPS, repeat=1),
            on_trace_ready=self._write,
        )

    def step(self, step: int) -> None:
        """Step number `step` was done."""
        self._step = step
        self._profile.step()

    def __enter__(self) -> StepTrace:
        self._profile.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._profile.stop()

    def _write(self, traced: profile) -> None:
        if self._step < self._first:
            return
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"steps_{self._first:08d}_{self._step:08d}.json"
        traced.export_chrome_trace(str(path))
        self._on_written(path)
