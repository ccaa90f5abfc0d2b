"""Tests the text of UserError and that it pickles."""

from __future__ import annotations

import pickle

from components.platform.errors import UserError


def test_text_of_user_error_with_and_without_remedy() -> None:
    assert str(UserError("a is missing", "install a")) == "a is missing\n  remedy: install a"
    assert str(UserError("a is missing")) == "a is missing"


def test_user_error_pickles_with_problem_and_remedy() -> None:
    error = pickle.loads(pickle.dumps(UserError("a is missing", "install a")))
    assert (error.problem, error.remedy) == ("a is missing", "install a")
