"""Tests of which files steps in containers can read and write. The image is one static program that reports this."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.models.containers import ContainerCollection

from components.platform.errors import UserError
from pipelines.images import Image, docker_client
from pipelines.local.runners.docker import LABEL, DockerRunner
from pipelines.local.scheduler import run_pipeline
from pipelines.local.step import RunLocations, Step

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

LOOK = r"""
#include <stdio.h>
#include <string.h>
/* Prints for each argument look:PATH the first line of the file and whether it is writable. */
int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], "look:", 5)) continue;
    char text[64] = "";
    FILE *file = fopen(argv[i] + 5, "r"), *written = fopen(argv[i] + 5, "a");
    if (file && !fgets(text, sizeof text, file)) text[0] = 0;
    printf("%s: %s, %s\n", argv[i] + 5, file ? text : "missing", written ? "writable" : "read-only");
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Image]]:
    folder = tmp_path_factory.mktemp("image")
    (folder / "look.c").write_text(LOOK)
    subprocess.run(["clang-19", "-static", "look.c", "-o", "look"], cwd=folder, check=True)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder / "look", "look")
    tag = f"mlgo-test-look:{os.getpid()}"
    with docker_client() as client:
        identity = json.loads(client.api.import_image_from_data(packed.getvalue(), *tag.split(":")))["status"]
        image = Image(tag, identity, 0, False)
        yield {"toolchain": image, "training": image}
        client.images.remove(identity, force=True)


def look(
    run: Path, images: dict[str, Image], paths: list[Path], *arguments: object, root: Path | None = None
) -> list[str]:
    """Return what a step with these arguments prints for each path."""
    step_arguments = (*map(str, arguments), *(f"look:{path}" for path in paths))
    step = Step("look", "mlgo-toolchain", "components.corpus", ("/look",), step_arguments, "")
    run_pipeline([step], run, DockerRunner(images, tuple(images)), RunLocations(str(root or run), str(run / ".files")))
    said = (run / "logs" / "look.log").read_text().splitlines()[-len(paths) :]
    return [line.removeprefix(f"{path}: ") for line, path in zip(said, paths, strict=True)]


def test_paths_named_by_command_are_mounted_read_only(tmp_path: Path, images: dict[str, Image]) -> None:
    """Covers an artifact of another run, a build whose objects are elsewhere, and a file that no command names."""
    policy, thing, secret = tmp_path / "old" / "policy" / "policy.json", tmp_path / "build" / "a.o", tmp_path / "secret"
    for path in (policy, thing, secret):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
        path.chmod(0o666)
    entries = [{"directory": str(thing.parent), "file": "a.c", "command": "cc -c a.c -o a.o"}]
    (tmp_path / "cc.json").write_text(json.dumps(entries))
    named = ("--policy", policy.parent, "--compile-commands", tmp_path / "cc.json")
    assert look(tmp_path / "run", images, [policy, thing, secret], *named) == [
        "policy.json, read-only",
        "a.o, read-only",
        "missing, read-only",
    ]


def test_artifact_root_outside_run_directory_is_writable(tmp_path: Path, images: dict[str, Image]) -> None:
    root = tmp_path / "root"
    assert look(tmp_path / "run", images, [root / "made"], root=root) == ["missing, writable"]
    assert (root / "made").exists() and not (tmp_path / "run" / "made").exists()


def test_mount_that_hides_image_directory_is_refused(tmp_path: Path, images: dict[str, Image]) -> None:
    with pytest.raises(UserError, match="would hide"):
        look(tmp_path / "run", images, [], "--existing", "/usr")


def test_container_is_removed_if_interrupted_while_starting(
    tmp_path: Path, images: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ContainerCollection.run

    def interrupted(*args: Any, **options: Any) -> None:
        run(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(ContainerCollection, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        look(tmp_path / "run", images, [])
    with docker_client() as client:
        assert client.containers.list(all=True, filters={"label": f"{LABEL}={tmp_path / 'run'}"}) == []
