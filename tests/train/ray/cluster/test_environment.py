import logging
import os

import pytest
from ray._private.ray_logging import stdout_deduplicator

from tokenfree.train.ray.cluster import SETTINGS, ray_environment


def test_settings_hold_in_the_block_and_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    before = dict(os.environ)
    with ray_environment({"RAY_X": "1"}), ray_environment({"RAY_X": "2"}):  # a sweep's second, inner one
        assert os.environ["RAY_X"] == "1"
        assert os.environ["OMP_WAIT_POLICY"] == "active"
        assert os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] == "0.2"
        assert os.environ["TUNE_DISABLE_SIGINT_HANDLER"] == "1"
    assert dict(os.environ) == before


def test_what_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("ray.tune")
    monkeypatch.setattr(logger, "level", logging.INFO)
    skipped = stdout_deduplicator.skip_re
    with ray_environment(mute=["ray.tune"]):
        assert logger.level == logging.CRITICAL
        pattern = stdout_deduplicator.skip_re
        assert pattern is not None
        for said in (
            "A worker died or was killed while executing a task",
            "Raylet is terminated. Termination is unexpected.",
            "The node with node id: 06b9 has been marked dead because the detector has missed too many heartbeats",
        ):
            assert pattern.search(said)
        assert not pattern.search("Warning: the object store is full")
    assert logger.level == logging.INFO
    assert stdout_deduplicator.skip_re is skipped
    with ray_environment():
        assert logger.level == logging.INFO
