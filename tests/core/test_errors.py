"""Errors of users: one line that holds all problems, also after a way through processes."""

import pickle

import pytest

from tokenfree.core.errors import SettingsError, UserError, first_line


def test_an_error_is_one_line_and_keeps_its_problems_apart() -> None:
    error = SettingsError("recipe x", ["a: wrong", "b: wrong"])
    assert str(error) == "recipe x: a: wrong; b: wrong"
    assert str(UserError("recipe x: no such file")) == "recipe x: no such file"
    assert str(SettingsError(problems=["a: wrong"])) == "a: wrong"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.source, again.problems) == (str(error), "recipe x", ("a: wrong", "b: wrong"))


@pytest.mark.parametrize(("message", "line"), [("", "ValueError"), ("\n one\ntwo", "one"), ("one", "one")])
def test_the_first_line_of_an_error_is_never_empty(message: str, line: str) -> None:
    assert first_line(ValueError(message)) == line
