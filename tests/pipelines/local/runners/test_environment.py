"""A step's identity has the installed versions and the variables that decide its result, and no others."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from components.platform.launcher.images import IMAGES
from pipelines.local.runners import environment
from pipelines.local.runners.environment import WITHOUT_EFFECT, identify_packages
from pipelines.local.runners.process import ProcessRunner
from pipelines.local.step import Step

PPO = Step("ppo", IMAGES["training"], "components.ppo", ("python",), (), "policy")


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch, toy_root: Path) -> str:
    """Of a step whose code imports TensorFlow."""
    (toy_root / "components" / "toy" / "network.py").write_text("import tensorflow as tf\nimport boto3\n")
    for name in environment.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return identify(toy_root)


def identify(toy_root: Path) -> str:
    return ProcessRunner(toy_root).identity(Step("toy", IMAGES["training"], "components.toy", ("python",), (), "toy"))


@pytest.mark.parametrize(
    ("package", "decides"), [("tensorflow-cpu", True), ("numpy", True), ("keras", True), ("boto3", False)]
)
def test_versions_of_packages_that_decide_results(
    identity: str, toy_root: Path, monkeypatch: pytest.MonkeyPatch, package: str, decides: bool
) -> None:
    installed = importlib.metadata.distribution

    class Upgraded:
        version = "99.0"
        requires = installed(package).requires

    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda name: Upgraded if name == package else installed(name)
    )
    assert (identify(toy_root) != identity) == decides


@pytest.mark.parametrize(
    ("variable", "decides"),
    [("TF_ENABLE_ONEDNN_OPTS", True), ("XLA_FLAGS", True), ("CCC_OVERRIDE_OPTIONS", True), ("MLGO_RUN_ID", False)]
    + [(name, False) for name in ("LANG", "TZ", "TF_CPP_MIN_LOG_LEVEL", "MLGO_CACHE_DIR", "OMP_NUM_THREADS")],
)
def test_variables_that_decide_results(
    identity: str, toy_root: Path, monkeypatch: pytest.MonkeyPatch, variable: str, decides: bool
) -> None:
    monkeypatch.setenv(variable, "other")
    assert (identify(toy_root) != identity) == decides


def test_required_packages_are_followed_unless_they_have_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirements = ["Lib_B>=1", "rich", 'not-here; sys_platform == "win32"', 'lib-c; extra == "more"']
    for name, version, requires in (("lib-a", "1", requirements), ("lib_b", "2", ["lib-a"]), ("lib-c", "3", [])):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {other}" for other in requires)]
        (folder / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
        (folder / "top_level.txt").write_text(f"module_of_{name.replace('-', '_')}\n")
    monkeypatch.syspath_prepend(tmp_path)
    environment._distributions_of_modules.cache_clear()
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    try:
        assert identify_packages(["module_of_lib_a", "unknown"]) == (python, "lib-a 1", "lib-b 2")
    finally:
        environment._distributions_of_modules.cache_clear()


def test_training_depends_on_what_it_computes_with() -> None:
    packages = identify_packages(ProcessRunner()._sources.third_party_modules(PPO.module))
    named = {package.partition(" ")[0] for package in packages}
    assert {"python", "tensorflow-cpu", "tf-agents", "gin-config", "numpy", "keras", "ml-dtypes", "pyarrow"} <= named
    assert not named & WITHOUT_EFFECT
