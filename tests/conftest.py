"""Fixtures for all tests: the folder of real data, and settings that keep tests quick on small machines."""

import os
from pathlib import Path

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# No deadlines: a busy machine is no failure. The same examples each time: what CI saw can be seen again.
hypothesis.settings.register_profile("tokenfree", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tokenfree")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real dumps and books, from TOKENFREE_TEST_DATA; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("TOKENFREE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; set TOKENFREE_TEST_DATA to a folder with wiki-dumps/ and books/")
    return folder
