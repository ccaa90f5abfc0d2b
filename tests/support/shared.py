"""Fixtures that take long to make, made once even if several pytest-xdist workers use them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from filelock import FileLock

from components.platform.storage.cache import default_cache_dir
from components.toolchain.build import build_tree
from components.toolchain.make import install
from components.toolchain.sdk import find_sdk
from components.toolchain.source import fetch_source_files, unpack

MakeOnce = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> MakeOnce:
    """A function that returns a directory that is made by the first worker that asks for it.

    Its arguments are the name of the directory and a function that makes its content. If that function fails, the next
    worker tries again.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        directory = base / "shared" / name
        directory.parent.mkdir(exist_ok=True)
        done = directory.with_name(f"{name}.done")
        with FileLock(directory.with_name(f"{name}.lock")):
            if not done.exists():
                directory.mkdir(exist_ok=True)
                fill(directory)
                done.touch()
        return directory

    return make


@pytest.fixture(scope="session")
def training_toolchain(make_once: MakeOnce) -> Path:
    """A training toolchain.

    $MLGO_TRAINING_TOOLCHAIN names an existing one. Otherwise it is built, from cached objects if there are any, so that
    it always matches the present sources.
    """
    if path := os.environ.get("MLGO_TRAINING_TOOLCHAIN"):
        return Path(path)

    def build(directory: Path) -> None:
        output = str(directory / "training")
        command = [sys.executable, "-m", "components.toolchain", "--mode", "training", "--output", output]
        subprocess.run(command, check=True)

    return make_once("toolchain", build) / "training"


@pytest.fixture(scope="session")
def pretrained_release(make_once: MakeOnce) -> Path:
    """A release toolchain that embeds the pretrained policies."""

    def build(directory: Path) -> None:
        command = [sys.executable, "-m", "components.toolchain", "--mode", "release", "--policy", "pretrained"]
        subprocess.run([*command, "--output", str(directory / "release")], check=True)

    return make_once("pretrained", build) / "release"


_DEVELOPMENT_FILES = ("llvm/lib/Analysis/DevelopmentModeInlineAdvisor.cpp", "llvm/lib/Analysis/TFLiteUtils.cpp")


@pytest.fixture(scope="session")
def upstream_clang(make_once: MakeOnce, training_toolchain: Path) -> Path:
    """A training clang as others build it: LLVM's own development mode with TensorFlow Lite, see upstream_clang/.

    It is linked in the build tree of the training clang, whose objects it shares.
    """

    def build(directory: Path) -> None:
        sdk, cache = find_sdk(19), default_cache_dir()
        source = fetch_source_files("deb", sdk, cache)
        (archive,) = (cache / "deb" / "llvm-toolchain-19").glob("*.orig.tar.xz")
        unpack(archive, directory, _DEVELOPMENT_FILES, ["--occurrence=1"])
        hook = Path(__file__).parent / "upstream_clang" / "add_clang.cmake"
        tensorflow = find_spec("tensorflow")
        assert tensorflow is not None and tensorflow.origin is not None
        settings = {
            "CMAKE_PROJECT_mlgo-clang_INCLUDE": hook,
            "DEVELOPMENT_SOURCE": directory,
            "TENSORFLOW_LIBRARIES": Path(tensorflow.origin).parent,
            # Those of the release clang that was last built in the tree: what embeds a policy is compiled otherwise.
            "MLGO_POLICY_INLINING": "",
            "MLGO_POLICY_REGALLOC": "",
        }
        with build_tree(cache, sdk, source, "native") as tree:
            try:
                subprocess.run(["cmake", *(f"-D{name}={value}" for name, value in settings.items()), tree], check=True)
                subprocess.run(["cmake", "--build", tree, "--target", "upstream"], check=True)
            finally:
                subprocess.run(["cmake", *(f"-U{name}" for name in settings), tree], check=True)
            install(tree / "upstream", sdk, directory)

    return make_once("upstream", build) / "bin" / "clang"
