"""Tests of the locks of base images and Debian packages: they can be updated, and every file follows them.

A fake `docker` on the PATH replaces registry and daemon; end_to_end/test_images.py builds the images themselves.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from docker.errors import ImageNotFound

from components.core.console import UserError
from pipelines import images
from pipelines.images import BASES, BASES_LOCK, Image, locked_base, push_images, write_images

ROOT = Path(__file__).parents[1]
NAMED = ("docker/*/*Dockerfile", "docker/cloudbuild.yaml", ".github/workflows/*.yml")
REQUIREMENTS = ROOT / "docker" / "requirements"
KEY = r"(?:ARG BASE=|container: | image: |- name: )"
"""What precedes a base image in a Dockerfile, a workflow and Cloud Build's file."""
DIGEST = "sha256:" + "a1" * 32
DOCKER = """#!/bin/bash
# $REGISTRY: "answers" or "silent"; $LOCAL: references of local images, one per line.
echo "$*" >>"$LOG"
case "$1 $2" in
  "version ") exit 0 ;;
  "pull -q") [ "$REGISTRY" = answers ] && [[ $3 != $MISSING ]] || { echo "no such host"; exit 1; } ;;
  "image inspect")
    reference=${*: -1}
    case $4 in
      *RepoDigests*) [ "$REGISTRY" = answers ] && printf '%s\\n\\n' "other@sha256:1" "${reference%%:*}@$DIGEST" ;;
      *local-base*) [ -n "$LOCAL_BASE" ] && echo true ;;
      *) grep -qxF "$reference" <<<"$LOCAL" ;;
    esac ;;
esac
"""


def entries(lock: Path) -> list[str]:
    return [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the files that name images and packages, next to a fake `docker`."""
    for pattern in (*NAMED, "docker/ba*", "docker/requirements/*", ".ci/*"):
        for path in ROOT.glob(pattern):
            copy = tmp_path / "tree" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    program(tmp_path, "docker", DOCKER)
    return tmp_path / "tree"


def program(directory: Path, name: str, text: str) -> None:
    (directory / "bin").mkdir(exist_ok=True)
    (directory / "bin" / name).write_text(text)
    (directory / "bin" / name).chmod(0o755)


def run(tree: Path, script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    defaults = {"REGISTRY": "answers", "DIGEST": DIGEST, "MISSING": "", "LOCAL": "", "LOCAL_BASE": ""}
    defaults |= {"PATH": f"{tree.parent / 'bin'}:{os.environ['PATH']}", "LOG": str(tree.parent / "log")}
    return subprocess.run(
        [str(tree / script), *arguments], env=os.environ | defaults | env, capture_output=True, text=True, timeout=60
    )


def contents(tree: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in tree.rglob("*") if path.is_file()}


def test_every_file_uses_base_images_of_the_lock() -> None:
    lock = entries(BASES_LOCK)
    known = {reference.partition("@")[0]: reference for reference in lock}
    assert set(BASES.values()) <= set(known)
    found = []
    for path in (path for pattern in NAMED for path in ROOT.glob(pattern)):
        for reference in re.findall(rf"{KEY}((?:debian|python):\S+)", path.read_text()):
            assert reference == known[reference.partition("@")[0]], f"{path}: docker/requirements/pin-images --copy"
            found.append(path)
        assert not re.findall(r"^FROM (?!\$\{)\S+", path.read_text(), re.MULTILINE), "a base image that is not locked"
    assert len(found) == 4 + 1 + 4
    for reference in lock:
        assert re.fullmatch(r"[a-z]+:[a-z0-9.-]+(@sha256:[0-9a-f]{64})?", reference)


def test_pin_images_updates_lock_and_every_file(tree: Path) -> None:
    done = run(tree, "docker/requirements/pin-images")
    assert done.returncode == 0, done.stderr
    lock = tree / "docker" / "requirements" / "base-images.txt"
    assert entries(lock) == [f"{entry.partition('@')[0]}@{DIGEST}" for entry in entries(BASES_LOCK)]
    assert lock.read_text().splitlines()[0] == BASES_LOCK.read_text().splitlines()[0]
    texts = "".join(path.read_text() for pattern in NAMED for path in tree.glob(pattern))
    pinned = re.findall(rf"{KEY}((?:debian|python):[a-z0-9.-]+)@{DIGEST}\s", texts)
    assert sorted(set(pinned)) == ["debian:bookworm", "debian:bookworm-slim", "python:3.11-slim-bookworm"]
    assert len(pinned) == 9 and texts.count(DIGEST) == 9
    before = contents(tree)
    assert run(tree, "docker/requirements/pin-images").returncode == 0 and contents(tree) == before
    assert run(tree, "docker/requirements/pin-images", "--check").stdout == ""


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"REGISTRY": "silent"}, "debian:bookworm cannot be pulled (no such host): nothing was changed"),
        ({"MISSING": "python:*"}, "python:3.11-slim-bookworm cannot be pulled"),
        ({"DIGEST": "none"}, "the registry returned no digest for debian:bookworm"),
    ],
)
def test_missing_digest_changes_nothing(tree: Path, env: dict[str, str], named: str) -> None:
    before = contents(tree)
    done = run(tree, "docker/requirements/pin-images", **env)
    assert done.returncode == 1 and named in done.stderr and "remedy: " in done.stderr
    assert contents(tree) == before


def test_image_without_digest_is_reported(tree: Path) -> None:
    lock = tree / "docker" / "requirements" / "base-images.txt"
    lock.write_text(f"debian:bookworm-slim\npython:3.11-slim-bookworm@{DIGEST}\n")
    done = run(tree, "docker/requirements/pin-images", "--check")
    assert done.returncode == 0 and done.stdout.startswith("warning: debian:bookworm-slim has no digest")
    assert "python" not in done.stdout
    done = run(tree, "docker/base-image")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[base-image] warning: debian:bookworm-slim has no digest in the lock, so its tag is used; "
        "run make lock-images to pin it",
        "[base-image] debian:bookworm-slim pulled",
        f"[base-image] python:3.11-slim-bookworm@{DIGEST} pulled",
    ]


def test_local_base_image_is_used_without_registry(tree: Path) -> None:
    lock = tree / "docker" / "requirements" / "base-images.txt"
    lock.write_text(f"debian:bookworm-slim@{DIGEST}\n")
    given = {"REGISTRY": "silent", "LOCAL": "debian:bookworm-slim"}
    done = run(tree, "docker/base-image", "debian:bookworm-slim", LOCAL_BASE="true", **given)
    assert done.returncode == 0 and "using the one that was made on this machine" in done.stdout
    done = run(tree, "docker/base-image", "debian:bookworm-slim", LOCAL=f"debian:bookworm-slim@{DIGEST}")
    assert done.stdout == f"[base-image] debian:bookworm-slim@{DIGEST} is on this machine\n"
    # A local image with that tag, but without that digest and not made on this machine, is another image.
    program(tree.parent, "debootstrap", "#!/bin/sh\nexit 1\n")
    done = run(tree, "docker/base-image", "debian:bookworm-slim", **given)
    assert done.returncode == 1 and "making debian:bookworm-slim with debootstrap" in done.stdout


class Images:
    """The local images of a fake docker client."""

    def __init__(self, *here: str) -> None:
        self.here = here

    def get(self, reference: str) -> str:
        if reference not in self.here:
            raise ImageNotFound(reference)
        return reference


class Client:
    def __init__(self, *here: str) -> None:
        self.images = Images(*here)


def test_build_uses_digest_or_tag_of_local_base_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(f"# the lock\ndebian:bookworm-slim@{DIGEST}\n")
    monkeypatch.setattr(images, "BASES_LOCK", lock)
    pinned = f"debian:bookworm-slim@{DIGEST}"
    assert images._base(Client(pinned, "debian:bookworm-slim"), "toolchain") == pinned
    assert capsys.readouterr().out == ""
    assert images._base(Client("debian:bookworm-slim"), "toolchain") == "debian:bookworm-slim"
    assert f"{pinned} is not on this machine: building on debian:bookworm-slim by tag" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"python:3\.11-slim-bookworm is not in .*lock\.txt"):
        locked_base(BASES["training"])


@pytest.mark.parametrize("base", ["debian:bookworm-slim", f"debian:bookworm-slim@{DIGEST}"])
def test_push_warns_about_base_image_without_digest(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Api:
        def push(self, *_arguments: object, **_options: object) -> list[dict[str, Any]]:
            return [{"aux": {"Digest": DIGEST}}]

    class Daemon:
        api = Api()

        def __enter__(self) -> Daemon:
            return self

        def __exit__(self, *_error: object) -> None: ...

    monkeypatch.setattr(images, "docker_client", Daemon)
    write_images(tmp_path / "images.json", {"toolchain": Image("r/mlgo-toolchain:1", "sha256:1", 1, False, base)})
    (pushed,) = push_images((), tmp_path / "images.json").values()
    assert pushed.reference == f"r/mlgo-toolchain@{DIGEST}" and pushed.base == base
    assert ("by tag; run make lock-images to pin its digest" in capsys.readouterr().out) is ("@" not in base)


def packages(lock: Path) -> dict[str, str]:
    return {line.partition("=")[0]: line for line in entries(lock)}


def test_workflows_install_locked_package_versions() -> None:
    lock = packages(REQUIREMENTS / "apt-ci.txt")
    lines = [
        line
        for path in (*ROOT.glob(".github/workflows/*.yml"), ROOT / "docker" / "cloudbuild.yaml")
        for line in path.read_text().splitlines()
        if re.search(r"apt-get .*install", line)
    ]
    assert len(lines) == 5
    for line in lines:
        words = [word for word in line.partition("--no-install-recommends")[2].split() if not word.startswith("-")]
        assert words and all(lock[word.partition("=")[0]] == word for word in words), "docker/requirements/pin-apt"


def test_package_has_same_version_in_all_locks() -> None:
    found: dict[str, set[str]] = {}
    for path in REQUIREMENTS.glob("apt-*.txt"):
        for name, line in packages(path).items():
            if "=" in line:
                found.setdefault(name, set()).add(line)
    assert not {name: lines for name, lines in found.items() if len(lines) > 1}, "make lock"
    for path in (REQUIREMENTS / "apt.txt", REQUIREMENTS / "apt-test.txt"):
        assert set(packages(path)) <= set(found), "a workflow could not install it in a pinned version"


def test_packages_that_loading_a_recipe_needs_are_listed() -> None:
    listed = {*packages(REQUIREMENTS / "apt.txt"), *packages(REQUIREMENTS / "apt-test.txt")}
    texts = [path.read_text() for path in (ROOT / "components" / "corpus" / "recipes").glob("*.yaml")]
    heads = [text.partition("projects:")[0] for text in texts if re.search(r"^ +sysroot:", text, re.MULTILINE)]
    needed = [re.findall(r"Needs the Debian package ([a-z0-9.+-]+[a-z0-9+])\.", head) for head in heads]
    assert needed and all(needed), "the head of a recipe with a sysroot names the sysroot's package"
    assert {name for found in needed for name in found} <= listed, (
        "tests load every recipe (docker/requirements/apt-test.txt)"
    )


def test_install_apt_uses_pinned_versions_if_asked(tree: Path) -> None:
    program(tree.parent, "dpkg-query", "#!/bin/sh\necho 'git installed'\n")
    for name in ("apt-get", "env", "sudo"):
        program(tree.parent, name, '#!/bin/bash\necho "$*" >>"$LOG"\n')
    wanted = tree / "wanted.txt"
    wanted.write_text("g++\ngit\nclang-19\n")
    done = run(tree, ".ci/install-apt", str(wanted), APT_PINNED="true")
    assert done.returncode == 0, done.stderr
    installed = (tree.parent / "log").read_text().splitlines()[-1].split()
    pinned = {
        name: packages(REQUIREMENTS / lock)[name]
        for name, lock in (("g++", "apt-ci.txt"), ("clang-19", "apt-toolchain.txt"))
    }
    assert installed[-2:] == [pinned["clang-19"], pinned["g++"]]
    assert run(tree, ".ci/install-apt", str(wanted)).returncode == 0
    assert (tree.parent / "log").read_text().splitlines()[-1].split()[-2:] == ["clang-19", "g++"]
    wanted.write_text("hello\n")
    done = run(tree, ".ci/install-apt", str(wanted), APT_PINNED="true")
    assert done.returncode == 1 and "no version of hello is pinned" in done.stderr and "remedy" in done.stderr
