"""The tests that mutants must pass exist."""

import pytest

from tools.mutation import covering


@pytest.mark.parametrize("folder", covering.TESTS)
def test_tests_of_a_folder_exist(folder: str) -> None:
    assert covering.tests_of(f"{folder}/base.py")
