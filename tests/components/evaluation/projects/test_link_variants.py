"""How a link variant changes a recipe."""

from __future__ import annotations

from components.core.projects.recipe import Recipe, Source
from components.evaluation.projects.link_variants import LINK_VARIANTS

DEFAULT, HIDDEN = LINK_VARIANTS["default"], LINK_VARIANTS["hidden"]


def recipe(*binaries: str, **more: object) -> Recipe:
    return Recipe("p", Source("path", "/p"), binaries=binaries, **more)  # type: ignore[arg-type]


def test_the_default_is_the_recipe_itself() -> None:
    given = recipe("libp.so.*", cmake_options=(("BUILD_SHARED_LIBS", "ON"),))
    assert DEFAULT.apply(given) is given
    assert DEFAULT.compile_flags == DEFAULT.link_flags == ()


def test_hidden_programs_have_their_libraries_in_them() -> None:
    changed = HIDDEN.apply(recipe("src/libp.so.*", "bin/p", cmake_options=(("BUILD_SHARED_LIBS", "ON"), ("X", "1"))))
    assert changed is not None
    assert changed.binaries == ("bin/p",)
    assert changed.cmake_options == (("X", "1"), ("BUILD_SHARED_LIBS", "OFF"))


def test_hidden_commands_stay_as_they_are() -> None:
    given = recipe("p", commands=("make",))
    assert HIDDEN.apply(given) == given


def test_a_library_alone_has_no_hidden_variant() -> None:
    assert HIDDEN.apply(recipe("libp.so.*", "libp.a", cmake_options=())) is None
