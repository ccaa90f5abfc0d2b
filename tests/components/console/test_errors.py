"""UserError's text, and that it survives the way between processes."""

from __future__ import annotations

import pickle

from components.console import UserError


def test_text_with_and_without_remedy() -> None:
    assert str(UserError("a is missing", "install a")) == "a is missing\n  remedy: install a"
    assert str(UserError("a is missing")) == "a is missing"


def test_pickles_with_both_parts() -> None:
    error = pickle.loads(pickle.dumps(UserError("a is missing", "install a")))
    assert (error.problem, error.remedy) == ("a is missing", "install a")
