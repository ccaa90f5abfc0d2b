"""Which modules validate a training."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.formats.corpus import Module
from components.ppo.training_data import MIN_OF_LANGUAGE, MIN_VALIDATION, _fill_up

CC1 = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-x", "ir")


def modules(part: str, c: int, cpp: int) -> list[Module]:
    names = [f"p/{part}{i}.c.o" for i in range(c)] + [f"p/{part}{i}.cpp.o" for i in range(cpp)]
    return [Module(name, Path("/nowhere"), command_override=CC1) for name in names]


@pytest.mark.parametrize(
    ("train", "validation", "filled"),
    [
        ((50, 50), (0, 30), (MIN_OF_LANGUAGE, 0)),
        ((50, 50), (MIN_OF_LANGUAGE - 2, 30), (2, 0)),
        ((50, 50), (MIN_OF_LANGUAGE, 30), (0, 0)),
        ((5, 95), (0, 30), (0, 0)),
        ((3, 4), (0, 1), (3, 4)),
    ],
    ids=["no_c", "little_c", "enough", "hardly_any_c_to_train_on", "few_modules"],
)
def test_each_language_of_the_training_is_validated(
    train: tuple[int, int], validation: tuple[int, int], filled: tuple[int, int]
) -> None:
    trained = {module.name: module for module in modules("t", *train)}
    chosen = [module.name for module in _fill_up(trained, modules("v", *validation))]
    c = sum(name.endswith(".c.o") for name in chosen)
    assert (c, len(chosen) - c) == filled and len(set(chosen)) == len(chosen)


def test_modules_of_training_complete_the_validation() -> None:
    trained = {module.name: module for module in modules("t", 0, 100)}
    set_aside = modules("v", 0, 5)
    chosen = _fill_up(trained, set_aside)
    assert len(chosen) == MIN_VALIDATION - 5
    assert chosen == _fill_up(dict(reversed(trained.items())), set_aside), "always the same"
