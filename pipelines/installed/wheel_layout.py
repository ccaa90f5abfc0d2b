"""Lays out the wheel: all is in the package `mlgo_pipeline`, because others have `components` and `pipelines`, too.

Commands of setuptools, which pyproject.toml names. An editable install has the folders of the repository as they are,
and this folder as `mlgo_pipeline`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

NAME = "mlgo_pipeline"
FOLDER = "pipelines/installed"
"""Its own code, in the repository."""
REQUIREMENTS = Path("docker/requirements")
SETUP_FILES = ("install-apt", "apt.txt", "build.txt", "training.txt", "ray.txt", "pipelines.txt")
"""What `mlgo setup` reads."""


class BuildWheel(build_py):
    """Builds the folders of the repository in the package NAME."""

    packages: list[str]
    package_dir: dict[str, str]
    package_data: dict[str, list[str]]

    def finalize_options(self) -> None:
        """Move each package, and its data, into NAME."""
        super().finalize_options()
        folders = {package for package in self.packages if "." not in package}
        if self.editable_mode:
            self.distribution.packages = self.packages = [*self.packages, NAME]
            self.distribution.package_dir = self.package_dir = {**self.package_dir, NAME: FOLDER}
            return
        moved = {package: f"{NAME}.{package}" for package in self.packages}
        self.package_dir = {moved[folder]: folder for folder in folders} | {NAME: FOLDER}
        self.packages = [*moved.values(), NAME]
        self.package_data = {moved.get(package, package): files for package, files in self.package_data.items()}

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return the modules of a package: of NAME itself, only what makes the others importable."""
        modules: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return modules if package != NAME else [module for module in modules if module[1] == "__init__"]

    def run(self) -> None:
        """Build, and add the lists of `mlgo setup`."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # an earlier build may have other files
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, NAME, REQUIREMENTS)
            target.mkdir(parents=True)
            for name in SETUP_FILES:
                self.copy_file(str(REQUIREMENTS / name), str(target / name))


class EggInfo(egg_info):
    """Writes the metadata with the wheel's import name."""

    def run(self) -> None:
        """Write top_level.txt after the others."""
        super().run()
        Path(self.egg_info, "top_level.txt").write_text(f"{NAME}\n", encoding="utf-8")
