"""Ways to compile and link whole projects. The benefit of a smaller function depends on what the linker drops."""

from __future__ import annotations

from dataclasses import dataclass, replace

from components.core.projects.recipe import Recipe


@dataclass(frozen=True)
class LinkVariant:
    """Flags to build a project with, the same for both compilers.

    Attributes:
        name: as in `Binary.link_variant`.
        compile_flags: clang's flags after the optimization level.
        link_flags: clang's flags for linking programs and shared libraries.
        programs_only: compare only programs, and build static libraries if the recipe leaves CMake the choice: these
            flags drop all code of a shared library that marks no symbol as visible.
    """

    name: str
    compile_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    programs_only: bool = False

    def apply(self, recipe: Recipe) -> Recipe | None:
        """Return the recipe for this variant; None if it names nothing that the variant compares."""
        if not self.programs_only:
            return recipe
        named = recipe.binaries or (_SHIPPED_PROGRAMS if recipe.debian else ())
        names = {glob: glob.rsplit("/", 1)[-1] for glob in named}
        programs = tuple(glob for glob, name in names.items() if ".so" not in name and not name.endswith(".a"))
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
"""default: the project's own build. hidden: the linker drops every function that is not called."""

_SHARED = "BUILD_SHARED_LIBS"
_SHIPPED_PROGRAMS = ("*/usr/bin/*", "*/usr/sbin/*", "*/usr/games/*")
"""Programs of a Debian package, as <binary package>/<path>."""
