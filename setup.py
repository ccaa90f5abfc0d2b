"""Lays out the wheel: all is in mlgo_pipeline, because others have packages `components` and `pipelines`, too.

Everything else is in pyproject.toml. An editable install has the folders of the repository as they are.
"""

import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

NAME = "mlgo_pipeline"
REQUIREMENTS = Path("docker/requirements")
SETUP_FILES = ("install-apt", "apt.txt", "build.txt", "training.txt", "ray.txt", "pipelines.txt")
"""What `mlgo setup` reads."""


class BuildWheel(build_py):
    """Build the folders of the repository in the package NAME."""

    def finalize_options(self):
        super().finalize_options()
        if self.editable_mode:
            return
        folders = {package for package in self.packages if "." not in package} - {NAME}
        moved = {package: f"{NAME}.{package}" for package in self.packages if package.partition(".")[0] in folders}
        self.package_dir = {moved[folder]: folder for folder in folders}
        self.packages = [moved.get(package, package) for package in self.packages]
        self.package_data = {moved.get(package, package): files for package, files in self.package_data.items()}

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # an earlier build may have other files
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, NAME, REQUIREMENTS)
            target.mkdir(parents=True)
            for name in SETUP_FILES:
                self.copy_file(str(REQUIREMENTS / name), str(target / name))


class Project(Distribution):
    def iter_distribution_names(self):
        """Return the names of top_level.txt."""
        return iter([NAME])


setup(distclass=Project, cmdclass={"build_py": BuildWheel})
