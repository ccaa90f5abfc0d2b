"""The image for users who have docker only: the commands of docs/install.md, "Docker only", run as they stand there."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.test_build_systems import MAKEFILE, SOURCES, blocks, section
from tests.end_to_end.containers import CAUTIOUS, ROOT, docker, reference
from tests.support.shared import MakeOnce

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

LIMIT_BYTES = 1.6e9
OWNER = 4321


@pytest.fixture(scope="module")
def image(images: Path, container_cache: Path, make_once: MakeOnce) -> str:
    """Build the image on the toolchain image of `images`, with the objects of the container cache."""
    toolchain, tag = reference(images, "toolchain"), "mlgo-clang-test"

    def build(directory: Path) -> None:
        (directory / "Dockerfile").write_text(f"FROM {toolchain}\nCOPY . /tmp/mlgo-cache/ccache/\n")
        ccache = container_cache / "containers" / "ccache"
        docker("build", "--tag", f"{tag}-builder", "--file", str(directory / "Dockerfile"), str(ccache))
        arguments = ["--build-arg", f"TOOLCHAIN={toolchain}", "--build-arg", f"BUILDER={tag}-builder", "--tag", tag]
        docker("build", *arguments, "--file", "docker/clang/Dockerfile", str(ROOT), timeout_s=1500)
        (directory / "tag").write_text(tag)

    return (make_once("clang-image", build) / "tag").read_text()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a Makefile that belongs to a user of no name."""
    directory = tmp_path / "project"
    directory.mkdir()
    for name, text in (SOURCES | {"Makefile": MAKEFILE}).items():
        (directory / name).write_text(text)
    for path in (directory, *directory.iterdir()):
        os.chown(path, OWNER, OWNER)
    return directory


def owners(directory: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in (directory, *directory.rglob("*"))}


def test_commands_of_the_page(image: str, project: Path) -> None:
    build, *commands = blocks(section(ROOT / "docs" / "install.md", "Docker only"))
    assert "docker build -f docker/clang/Dockerfile -t mlgo ." in build
    script = re.sub(r" mlgo (?=shrink|sh|clang|evaluation|tar)", f" {image} ", "\n".join(commands))
    assert script.count(image) == 5
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert "building a release clang" not in done.stdout
    shrunk = json.loads((project / "mlgo-shrink" / "shrink.json").read_text())
    assert shrunk["chosen"] != "own" and shrunk["reduction_percent"] > 0, shrunk
    written = {path.name for path in project.iterdir()} - {"clang"}  # tar runs on the host
    assert {"mlgo-shrink", "app", "main.o", "before"} <= written
    assert set().union(*(owners(project / name) for name in written - {"main.o"})) == {(OWNER, OWNER)}
    # What the lines of the result build is what was delivered; then it runs here, too.
    assert (project / "app").read_bytes() == (project / "mlgo-shrink" / "files" / "app").read_bytes()
    functions = json.loads((project / "before" / "build.json").read_text())["files"]["app"]["functions"]
    assert functions["main"] > 0


def test_user_and_minimal_privileges(image: str, project: Path) -> None:
    (project / "out").mkdir()
    os.chown(project / "out", 1000, 1000)
    mount = ("-v", f"{project}:/src")
    compile_command = ("clang++", "-Oz", "-c", "text.cpp", "-o", "out/text.o")
    docker("run", "--rm", *CAUTIOUS, *mount, image, *compile_command)
    assert owners(project / "out") == {(1000, 1000)}
    said = docker("run", "--rm", *mount, image, "shrink", "--", "false", check=False)
    assert "error: the build, false, ends with status 1" in said and not (project / "mlgo-shrink").exists()
    assert "Build your code by COMMAND" in docker("run", "--rm", *mount, image, "shrink", "--help")
    assert "\n  shrink " in docker("run", "--rm", image)


def test_size_and_labels(image: str) -> None:
    (inspected,) = json.loads(docker("image", "inspect", image))
    assert inspected["Size"] <= LIMIT_BYTES, f"{inspected['Size'] / 1e9:.2f} GB"
    assert inspected["Config"]["Labels"]["org.opencontainers.image.title"] == "mlgo-pipeline clang"


def test_functions_have_readable_names(image: str, project: Path) -> None:
    """The image keeps LLVM's demangler."""
    script = (
        "make -s && mlgo evaluation compare-builds . --output old && make -s clean && make -s CXXFLAGS=-Os && "
        "mlgo evaluation compare-builds old ."
    )
    said = docker("run", "--rm", "-v", f"{project}:/src", image, "sh", "-c", script)
    assert "repeat(" in said and "_Z" not in said  # names are cut to the width
