"""Tests of the locks of base images and Debian packages: they can be updated, and every file follows them.

A fake `docker` on the PATH replaces registry and daemon; end_to_end/test_images.py builds the images themselves.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from components.platform.errors import UserError
from pipelines import images
from pipelines.cli.images import images_group
from pipelines.images import (
    BASES,
    BASES_LOCK,
    Image,
    build_images,
    locked_base,
    push_images,
    read_images,
    write_images,
)

ROOT = Path(__file__).parents[2]
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
  "import "*) cat >/dev/null ;;
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
AS_ROOT = "#!/bin/sh\necho 0\n"


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
    assert not (directory / "bin" / name).is_symlink(), "a test must not write to what a link names"
    (directory / "bin" / name).write_text(text)
    (directory / "bin" / name).chmod(0o755)


def without_debootstrap(tree: Path) -> None:
    """Leave on the PATH what the scripts use, but not debootstrap."""
    programs = {"awk", "bash", "dirname", "grep", "id", "df", "env", "printf", "sed", "sort", "tail", "timeout"}
    for name in programs - {path.name for path in (tree.parent / "bin").iterdir()}:
        # Not a link, through which `program` would write.
        program(tree.parent, name, f'#!/bin/sh\nexec {shutil.which(name)} "$@"\n')
    bare = tree / "docker" / "bare-debian"
    bare.write_text(bare.read_text().replace("\nPATH=$PATH:/usr/sbin:/sbin", "\n"))


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
    locked = {reference.partition("@")[0]: reference for reference in lock}
    assert set(BASES.values()) <= set(locked)
    paths = []
    for path in (path for pattern in NAMED for path in ROOT.glob(pattern)):
        for reference in re.findall(rf"{KEY}((?:debian|python):\S+)", path.read_text()):
            assert reference == locked[reference.partition("@")[0]], f"{path}: docker/requirements/pin-images --copy"
            paths.append(path)
        assert not re.findall(r"^FROM (?!\$\{)\S+", path.read_text(), re.MULTILINE), "a base image that is not locked"
    assert len(paths) == 4 + 1 + 4
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
    variables = {"REGISTRY": "silent", "LOCAL": "debian:bookworm-slim"}
    done = run(tree, "docker/base-image", "debian:bookworm-slim", LOCAL_BASE="true", **variables)
    assert done.returncode == 0 and "using the one that was made on this machine" in done.stdout
    done = run(tree, "docker/base-image", "debian:bookworm-slim", LOCAL=f"debian:bookworm-slim@{DIGEST}")
    assert done.stdout == f"[base-image] debian:bookworm-slim@{DIGEST} is on this machine\n"
    # A local image with that tag, but without that digest and not made on this machine, is another image.
    program(tree.parent, "debootstrap", "#!/bin/sh\nexit 1\n")
    program(tree.parent, "id", AS_ROOT)
    done = run(tree, "docker/base-image", "debian:bookworm-slim", **variables)
    assert done.returncode == 1 and "making debian:bookworm-slim with debootstrap" in done.stdout


def test_everything_that_making_bases_needs_is_named_before_the_first(tree: Path) -> None:
    without_debootstrap(tree)
    program(tree.parent, "id", "#!/bin/sh\necho 1000\n")
    program(tree.parent, "df", "#!/bin/sh\nprintf 'Avail\\n  300\\n'\n")
    done = run(tree, "docker/base-image", REGISTRY="silent", TMPDIR="/tmp", PATH=str(tree.parent / "bin"))
    assert done.returncode == 1 and "making" not in done.stdout
    assert done.stdout.count("cannot be pulled: no such host") == 2
    assert done.stderr == (
        "error: debootstrap is not installed; debootstrap needs root; "
        "/tmp has 300 MB of free space and 1000 MB are needed\n"
        "  remedy: sudo apt-get install debootstrap; run the same command as root, or with sudo; "
        "free some, or set TMPDIR\n"
    )


def test_missing_directory_of_temporary_files_is_named(tree: Path) -> None:
    done = run(tree, "docker/bare-debian", "--check", TMPDIR=str(tree / "none"))
    assert done.returncode == 1 and f"TMPDIR={tree / 'none'} is no directory" in done.stderr
    assert done.stderr.startswith("error: ") and "set TMPDIR to one, or unset it" in done.stderr


def test_bases_that_can_be_pulled_need_no_debootstrap(tree: Path) -> None:
    without_debootstrap(tree)
    assert run(tree, "docker/base-image", PATH=str(tree.parent / "bin")).returncode == 0


@pytest.mark.parametrize(
    ("pip_configuration", "label"),
    [
        ("index-url = https://user:secret@host/simple", "/etc/pip.conf"),
        ("proxy = user:secret@host:3128", "/etc/pip.conf"),
        ("index-url = https://host/simple", ""),
    ],
)
def test_base_made_here_names_its_files_with_credentials(tree: Path, pip_configuration: str, label: str) -> None:
    """The test's debootstrap makes a system of one file, and `chroot` is not called in it."""
    program(tree.parent, "id", AS_ROOT)
    program(
        tree.parent,
        "debootstrap",
        '#!/bin/sh\nmkdir -p "$4/etc/apt/sources.list.d" "$4/var/log"\n'
        f"echo '{pip_configuration}' >\"$4/etc/pip.conf\"\n",
    )
    for name in ("chroot", "install"):
        program(tree.parent, name, "#!/bin/sh\n")
    done = run(tree, "docker/base-image", "debian:bookworm-slim", REGISTRY="silent")
    assert done.returncode == 0, done.stderr
    (imported,) = [line for line in (tree.parent / "log").read_text().splitlines() if line.startswith("import")]
    assert f'LABEL mlgo.local-base-credentials="{label}" ' in imported and "LABEL mlgo.local-base=true" in imported


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


class Daemon:
    """A docker client that pushes, and has the given images: tag -> labels.

    Attributes:
        pushed: tags.
    """

    def __init__(self, labels: dict[str, dict[str, str]]) -> None:
        self.pushed: list[str] = []
        self.labels = labels
        self.api = self.images = self

    def push(self, tag: str, **_options: object) -> list[dict[str, Any]]:
        self.pushed.append(tag)
        return [{"aux": {"Digest": DIGEST}}]

    def get(self, tag: str) -> SimpleNamespace:
        if tag not in self.labels:
            raise ImageNotFound(tag)
        return SimpleNamespace(labels=self.labels[tag])

    def info(self) -> dict[str, Any]:
        return {"DockerRootDir": "/"}

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_error: object) -> None: ...


@pytest.mark.parametrize("base", ["debian:bookworm-slim", f"debian:bookworm-slim@{DIGEST}"])
def test_push_warns_about_base_image_without_digest(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(images, "docker_client", lambda: Daemon({}))
    write_images(tmp_path / "images.json", {"toolchain": Image("r/mlgo-toolchain:1", "sha256:1", 1, False, base)})
    (pushed,) = push_images((), tmp_path / "images.json").values()
    assert pushed.reference == f"r/mlgo-toolchain@{DIGEST}" and pushed.base == base
    assert ("by tag; run make lock-images to pin its digest" in capsys.readouterr().out) is ("@" not in base)


def test_images_on_a_base_made_here_are_pushed_on_request_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "images.json"
    command = ["push", "--output", str(output)]
    labels = {"mlgo.local-base": "true", "mlgo.local-base-credentials": ""}
    daemon = Daemon({"r/mlgo-toolchain:1": {}, "r/mlgo-training:1": labels})
    monkeypatch.setattr(images, "docker_client", lambda: daemon)
    built = {
        name: Image(f"r/mlgo-{name}:1", "sha256:1", 1, name == "training", BASES[name])
        for name in ("toolchain", "training")
    }
    write_images(output, built)
    with pytest.raises(UserError, match=r"r/mlgo-training:1 was built on a base image that .* made on this") as caught:
        images_group.main(command, standalone_mode=False)
    assert "pip configuration" in caught.value.problem and "--allow-bootstrapped-base" in caught.value.remedy
    assert not daemon.pushed and read_images(output) == built, "not the first image without the second"
    images_group.main([*command, "--allow-bootstrapped-base"], standalone_mode=False)
    assert daemon.pushed == ["r/mlgo-toolchain:1", "r/mlgo-training:1"]
    assert read_images(output)["training"].reference == f"r/mlgo-training@{DIGEST}"
    assert "warning: r/mlgo-training:1 was built on a base made here: this machine's apt" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({"mlgo.local-base-credentials": "/etc/pip.conf"}, "has /etc/pip.conf of this machine in it, with a user or"),
        ({}, "did not look for credentials"),
        (None, "is not on this machine"),
    ],
)
def test_images_with_credentials_of_this_machine_are_never_pushed(
    labels: dict[str, str] | None, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(
        {"r/mlgo-sdk:1": {"mlgo.local-base-credentials": ""}} | ({"r/i:1": labels} if labels is not None else {})
    )
    monkeypatch.setattr(images, "docker_client", lambda: daemon)
    built = {"sdk": Image("r/mlgo-sdk:1", "sha256:1", 1, True), "training": Image("r/i:1", "sha256:1", 1, True)}
    write_images(tmp_path / "images.json", built)
    with pytest.raises(UserError, match=named) as caught:
        push_images((), tmp_path / "images.json", allow_bootstrapped_base=True)
    assert "mlgo images build --image training" in caught.value.remedy and not daemon.pushed


def test_everything_that_a_build_needs_is_named_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither docker's program nor its daemon nor debootstrap is here."""
    for name in ("awk", "bash", "df", "dirname", "grep", "tail"):
        program(tmp_path, name, f'#!/bin/sh\nexec {shutil.which(name)} "$@"\n')
    program(tmp_path, "id", "#!/bin/sh\necho 1000\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(UserError) as caught:
        build_images(("toolchain",), "", tmp_path / "images.json")
    problems, remedies = caught.value.problem.split("; "), caught.value.remedy
    assert problems[0] == "the program docker is not installed" and "the docker daemon does not answer" in problems[1]
    assert problems[2].startswith("if no registry answers, deb") and "debootstrap needs root" in caught.value.problem
    assert "sudo apt-get install docker.io; start it" in remedies and "as root, or with sudo" in remedies
    assert not (tmp_path / "images.json").exists()


@pytest.mark.parametrize(
    ("before", "free", "named"),
    [((), 2e9, "and the images alone take 2.6 GB"), (("training",), 2e9, ""), ((), 3e9, "")],
)
def test_full_disk_is_named_before_the_first_build(
    before: tuple[str, ...], free: float, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images that were built here before have their layers in docker's cache."""
    program(tmp_path, "docker", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(images, "docker_client", lambda: Daemon({}))
    monkeypatch.setattr(images.shutil, "disk_usage", lambda _place: SimpleNamespace(free=free))

    def begun(_names: object) -> None:
        raise UserError("begun")

    monkeypatch.setattr(images, "ensure_bases", begun)
    write_images(tmp_path / "images.json", {name: Image("t", "sha256:1", 1, False) for name in before})
    with pytest.raises(UserError, match=named or "^begun$"):
        build_images((), "", tmp_path / "images.json")


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
    lines_by_name: dict[str, set[str]] = {}
    for path in REQUIREMENTS.glob("apt-*.txt"):
        for name, line in packages(path).items():
            if "=" in line:
                lines_by_name.setdefault(name, set()).add(line)
    assert not {name: lines for name, lines in lines_by_name.items() if len(lines) > 1}, "make lock"
    for path in (REQUIREMENTS / "apt.txt", REQUIREMENTS / "apt-test.txt"):
        assert set(packages(path)) <= set(lines_by_name), "a workflow could not install it in a pinned version"


def test_packages_that_loading_a_recipe_needs_are_listed() -> None:
    listed = {*packages(REQUIREMENTS / "apt.txt"), *packages(REQUIREMENTS / "apt-test.txt")}
    texts = [path.read_text() for path in (ROOT / "components" / "core" / "projects" / "recipes").glob("*.yaml")]
    heads = [text.partition("projects:")[0] for text in texts if re.search(r"^ +sysroot:", text, re.MULTILINE)]
    needed = [re.findall(r"Needs the Debian package ([a-z0-9.+-]+[a-z0-9+])\.", head) for head in heads]
    assert needed and all(needed), "the head of a recipe with a sysroot names the sysroot's package"
    assert {name for head in needed for name in head} <= listed, (
        "tests load every recipe (docker/requirements/apt-test.txt)"
    )


def test_install_apt_uses_pinned_versions_if_asked(tree: Path) -> None:
    program(tree.parent, "dpkg-query", "#!/bin/sh\necho 'git installed'\n")
    for name in ("apt-get", "env", "sudo"):
        program(tree.parent, name, '#!/bin/bash\necho "$*" >>"$LOG"\n')
    list_file = tree / "wanted.txt"
    list_file.write_text("g++\ngit\nclang-19\n")
    done = run(tree, "docker/requirements/install-apt", str(list_file), APT_PINNED="true")
    assert done.returncode == 0, done.stderr
    installed = (tree.parent / "log").read_text().splitlines()[-1].split()
    pinned = {
        name: packages(REQUIREMENTS / lock)[name]
        for name, lock in (("g++", "apt-ci.txt"), ("clang-19", "apt-toolchain.txt"))
    }
    assert installed[-2:] == [pinned["clang-19"], pinned["g++"]]
    assert run(tree, "docker/requirements/install-apt", str(list_file)).returncode == 0
    assert (tree.parent / "log").read_text().splitlines()[-1].split()[-2:] == ["clang-19", "g++"]
    list_file.write_text("hello\n")
    done = run(tree, "docker/requirements/install-apt", str(list_file), APT_PINNED="true")
    assert done.returncode == 1 and "no version of hello is pinned" in done.stderr and "remedy" in done.stderr


@pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0,
    reason="chroot and mounts need root and the right to mount",
)
@pytest.mark.parametrize("certificates", [True, False])
def test_bare_debian_does_not_depend_on_the_directory_of_temporary_files(tmp_path: Path, certificates: bool) -> None:
    """A fake debootstrap makes a root of this machine's programs, in which the real update-ca-certificates runs."""
    program(
        tmp_path,
        "debootstrap",
        """#!/bin/sh
for root; do case $root in */root) break;; esac; done
mkdir -p "$root/tmp" "$root/dev" "$root/usr/local" "$root/etc/ssl/certs" "$root/etc/ca-certificates/update.d"
touch "$root/etc/ca-certificates.conf"
for name in bin lib lib64 sbin; do [ ! -L /$name ] || ln -s "usr/$name" "$root/$name"; done
for name in bin lib lib64 sbin share; do
  [ ! -d /usr/$name ] || { mkdir "$root/usr/$name" && mount --bind /usr/$name "$root/usr/$name"; }
done
mount --bind /dev "$root/dev"
"""
        + ("" if certificates else 'rm -r "$root/etc/ssl"\n'),
    )
    (tmp_path / "place").mkdir()
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path / "place"),
    }
    command = ["unshare", "--mount", str(ROOT / "docker" / "bare-debian"), str(tmp_path / "root")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if certificates:
        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / "root/etc/ssl/certs/ca-certificates.crt").exists()
    else:
        assert done.returncode == 1
        assert "error: update-ca-certificates failed: " in done.stderr and "remedy: " in done.stderr
