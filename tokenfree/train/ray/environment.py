"""What Ray, Train and Tune read from the environment of the driver, and what they are kept from printing."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence

from tokenfree.train.ray.internals import muted

SETTINGS: Mapping[str, str] = {  # where the user has not set them
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # how soon a lost worker is noticed; 2 by default
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
    "RAY_API_SERVER_ADDRESS": "no_state_api://here",  # for Ray's own cleaner, see train/ray/cleaner.py
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the coming default; without it each start prints a warning
    "RAY_AIR_NEW_OUTPUT": "0",  # Tune's new output prints banners at any verbosity
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal of a sweep has it all
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is to interrupt here as everywhere
    "OMP_WAIT_POLICY": "passive",  # threads that spin while they wait made a busy machine 40 times slower
}

TUNE_LOGGERS = ("ray.tune", "ray.train")  # what they say of a sweep is in its journal

_PUT_BY_US = "A worker died or was killed|Raylet is terminated|has been marked dead"  # in a line of our own


@contextlib.contextmanager
def ray_environment(more: Mapping[str, str] | None = None, *, mute: Sequence[str] = ()) -> Iterator[None]:
    """In the block the environment has `SETTINGS` and `more`, where the user has not set them.

    It is to be in force before Ray starts, so that its processes inherit it. What Ray prints about a lost worker or
    node (dozens of lines) is left to its logs; the user gets a line of ours.

    Args:
        mute: names of loggers of this process that are to say nothing below critical.
    """
    added = {name: value for name, value in {**SETTINGS, **(more or {})}.items() if name not in os.environ}
    levels = {name: logging.getLogger(name).level for name in mute}
    os.environ.update(added)
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with muted(_PUT_BY_US):
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        for name in added:
            del os.environ[name]
