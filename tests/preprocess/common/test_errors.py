"""Errors of users: one line that holds all problems, also after a way through processes."""

import pickle

from tokenfree.core.errors import UserError


def test_an_error_is_one_line_and_keeps_its_problems_apart() -> None:
    error = UserError("recipe x", ["a: wrong", "b: wrong"])
    assert str(error) == "recipe x: a: wrong; b: wrong"
    assert str(UserError("recipe x: no such file")) == "recipe x: no such file"
    assert str(UserError(problems=["a: wrong"])) == "a: wrong"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.source, again.problems) == (str(error), "recipe x", ("a: wrong", "b: wrong"))
