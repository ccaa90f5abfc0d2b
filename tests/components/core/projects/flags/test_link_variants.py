"""Tests of the changes of a link variant to a recipe."""

from __future__ import annotations

from components.core.projects.flags.link_variants import LINK_VARIANTS
from components.core.projects.recipe import Recipe, Source

DEFAULT, HIDDEN = LINK_VARIANTS["default"], LINK_VARIANTS["hidden"]


def recipe(*binaries: str, **more: object) -> Recipe:
    return Recipe("p", Source("path", "/p"), binaries=binaries, **more)  # type: ignore[arg-type]


def test_default_variant_does_not_change_the_recipe() -> None:
    original = recipe("libp.so.*", cmake_options=(("BUILD_SHARED_LIBS", "ON"),))
    assert DEFAULT.apply(original) is original
    assert DEFAULT.compile_flags == DEFAULT.link_flags == ()


def test_hidden_variant_links_libraries_statically() -> None:
    changed = HIDDEN.apply(recipe("src/libp.so.*", "bin/p", cmake_options=(("BUILD_SHARED_LIBS", "ON"), ("X", "1"))))
    assert changed is not None
    assert changed.binaries == ("bin/p",)
    assert changed.cmake_options == (("X", "1"), ("BUILD_SHARED_LIBS", "OFF"))


def test_hidden_variant_keeps_build_commands() -> None:
    original = recipe("p", commands=("make",))
    assert HIDDEN.apply(original) == original


def test_library_without_programs_has_no_hidden_variant() -> None:
    assert HIDDEN.apply(recipe("libp.so.*", "libp.a", cmake_options=())) is None
