"""Ways to compile and link a whole project: what the linker drops decides what a smaller function is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace

from components.core.projects.recipe import Recipe


@dataclass(frozen=True)
class LinkVariant:
    """One way to build a project, the same for both compilers.

    Attributes:
        name: as in `Binary.link_variant`.
        compile_flags: behind the level of optimization.
        link_flags: of clang, for programs and shared libraries.
        programs_only: builds libraries statically where the recipe leaves CMake the choice, and compares programs only:
            of a shared library that marks no symbol as visible, these flags leave nothing.
    """

    name: str
    compile_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    programs_only: bool = False

    def apply(self, recipe: Recipe) -> Recipe | None:
        """Return the recipe of this variant; None if it names nothing that the variant compares."""
        if not self.programs_only:
            return recipe
        named = recipe.binaries or (_SHIPPED_PROGRAMS if recipe.debian else ())
        programs = tuple(glob for glob in named if not _is_library(glob))
        if not programs:
            return None
        options = recipe.cmake_options
        if options is not None:
            options = (*(option for option in options if option[0] != _SHARED), (_SHARED, "OFF"))
        return replace(recipe, cmake_options=options, binaries=programs)


LINK_VARIANTS = {
    variant.name: variant
    for variant in (
        LinkVariant("default"),
        LinkVariant(
            "hidden",
            ("-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"),
            ("-Wl,--gc-sections",),
            programs_only=True,
        ),
    )
}
"""default: as the project builds itself. hidden: the linker drops every function that is not called."""

_SHARED = "BUILD_SHARED_LIBS"
_SHIPPED_PROGRAMS = ("*/usr/bin/*", "*/usr/sbin/*", "*/usr/games/*")
"""Of a Debian package, below the name of a binary package."""


def _is_library(glob: str) -> bool:
    name = glob.rsplit("/", 1)[-1]
    return ".so" in name or name.endswith(".a")
