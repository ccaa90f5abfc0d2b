"""The container images that the steps run in: built and pushed through the docker SDK, known by what they hold.

build/images.json (IMAGES_JSON), which `mlgo pipeline` reads:

    {"toolchain": {"tag": "mlgo-toolchain:5d41402abc4b", "reference": "sha256:... or REGISTRY/...@sha256:...",
                   "bytes": 1012345678, "local_base": false, "base": "debian:bookworm-slim@sha256:..."},
     "training": {...}}

`reference` never moves, because KFP caches on an image's name: the digest in a registry where the image was pushed, its
identity on this machine otherwise. A tag is for people.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from components.console import UserError, say
from components.launcher.images import CLUSTER, STEPS
from components.storage.directory import make_directory
from components.storage.input_files import MissingFile, expect_shape, read_json
from pipelines.source import ROOT

IMAGES_JSON = Path("build/images.json")
LOCAL_BASE = "mlgo.local-base"
_PYTHON = "python:3.11-slim-bookworm"
BASES = {"toolchain": "debian:bookworm-slim", "training": _PYTHON, CLUSTER: _PYTHON}
"""What each image is built on; the keys are the folders of docker/ with a Dockerfile."""
BASES_LOCK = ROOT / "docker" / "requirements" / "base-images.txt"
"""A line for each base image, NAME:TAG@sha256:DIGEST, or without a digest where nobody has looked it up."""
ON_IMAGE = {CLUSTER: "training"}
"""Images that are built on another one of ours, of the same commit."""
_TIMEOUT_S = 1800


@dataclass(frozen=True)
class Image:
    """An image that was built.

    Attributes:
        bytes: its size unpacked.
        local_base: its base was made here, so it stays here.
        base: what it was built on, NAME:TAG@sha256:DIGEST where the lock has a digest and a registry had the image.
    """

    tag: str
    reference: str
    bytes: int
    local_base: bool
    base: str = ""


def build_images(names: tuple[str, ...], registry: str, output: Path) -> dict[str, Image]:
    """Builds the images `names`, tagged by git commit, and writes their references to `output`.

    Args:
        names: of BASES; an image that one of them is built on is built, too. Empty: those that steps run in.
        registry: prefix of the tags, "europe-docker.pkg.dev/PROJECT/REPO"; empty for this machine.

    Raises:
        UserError: a registry that no image's name can begin with, no docker daemon, a base image that can neither be
            pulled nor made, a build that failed.
    """
    from docker.utils.build import match_tag

    prefix = f"{registry}/" if registry else ""
    if not match_tag(f"{prefix}mlgo"):
        raise UserError(
            f"--registry {registry!r} cannot be the beginning of an image's name",
            "write it as HOST/PROJECT/REPOSITORY, in lower case: europe-docker.pkg.dev/my-project/mlgo",
        )
    wanted = {*(names or STEPS)}
    wanted |= {ON_IMAGE[name] for name in wanted if name in ON_IMAGE}
    ordered = tuple(name for name in BASES if name in wanted)
    before = read_images(output) if output.exists() else {}
    with docker_client() as client:
        ensure_bases(ordered)
        images: dict[str, Image] = {}
        for name in ordered:
            images[name] = _build(client, name, prefix, images)
    # What stands on an image that is another now would run another commit's code beside it.
    outdated = {name for name, below in ON_IMAGE.items() if below in images and before.get(below) != images[below]}
    write_images(output, {name: image for name, image in before.items() if name not in outdated} | images)
    return images


def push_images(names: tuple[str, ...], output: Path) -> dict[str, Image]:
    """Pushes what `build_images` built and replaces the references in `output` by the registry's digests.

    Args:
        names: of BASES. Empty: those that are built.

    Raises:
        UserError: not built, built on a base image made here, or the registry refuses.
    """
    images = read_images(output)
    names = names or tuple(images)
    with docker_client() as client:
        for name in names:
            if name not in images:
                raise UserError(f"the image {name} is not built", f"mlgo images build --image {name}")
            image = images[name]
            if image.local_base:
                raise UserError(
                    f"{image.tag} was built on a base image made on this machine, with this machine's certificates",
                    "build it where a registry can be reached, and push it from there",
                )
            if "@sha256:" not in image.base:
                base = image.base or BASES[name]
                say(f"warning: {image.tag} was built on {base} by its tag: make lock-images pins its digest")
            images[name] = _push(client, image)
    write_images(output, images)
    return {name: images[name] for name in names}


def read_images(path: Path) -> dict[str, Image]:
    """Reads images.json. UserError if there is none."""
    try:
        document = read_json(path, "make images")
    except MissingFile:
        raise UserError(f"there are no images: {path} does not exist", "make images, or mlgo images build") from None
    with expect_shape(path, "a list of images", "make images"):
        images = {name: Image(**fields) for name, fields in document.items()}
        if not all(isinstance(text, str) for image in images.values() for text in (image.tag, image.reference)):
            raise ValueError("a tag or reference is no text")
    return images


def write_images(path: Path, images: dict[str, Image]) -> None:
    make_directory(path.parent, path)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps({name: asdict(image) for name, image in sorted(images.items())}, indent=1) + "\n")
    os.replace(fresh, path)


@contextmanager
def docker_client() -> Iterator[Any]:
    """The docker daemon's client. UserError if it does not answer."""
    import docker
    import requests
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=_TIMEOUT_S)
        client.ping()
    except (DockerException, requests.RequestException) as error:
        raise UserError(
            f"the docker daemon does not answer: {str(error).splitlines()[0]}",
            "start it (sudo systemctl start docker, or dockerd &); check DOCKER_HOST and that you are in its group",
        ) from None
    with closing(client):
        yield client


def layers(client: Any, image: Image) -> list[tuple[int, str]]:
    """(bytes, the instruction that made it) of each layer that has a size, the base first."""
    history = client.images.get(image.reference).history()
    return [(entry["Size"], _instruction(entry["CreatedBy"])) for entry in reversed(history) if entry["Size"]]


def ensure_bases(names: tuple[str, ...]) -> None:
    """Runs docker/base-image for the bases of `names`."""
    command = [str(ROOT / "docker" / "base-image"), *(BASES[name] for name in names)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        problem, _newline, remedy = done.stderr.strip().removeprefix("error: ").partition("\n  remedy: ")
        raise UserError(problem, remedy)


def locked_base(base: str) -> str:
    """The reference of a base image in the lock. UserError if the lock does not have it."""
    for line in BASES_LOCK.read_text(encoding="utf-8").splitlines():
        reference = line.partition("#")[0].strip()
        if reference.partition("@")[0] == base:
            return reference
    raise UserError(f"{base} is not in {BASES_LOCK}", "add it, and make lock-images")


def _base(client: Any, name: str) -> str:
    """What the image `name` is built on, now that docker/base-image has run.

    By the lock's digest where that is here. An image that was made here or loaded from an archive has no digest to be
    named by; it is built on by its tag.
    """
    from docker.errors import ImageNotFound

    locked = locked_base(BASES[name])
    try:
        client.images.get(locked)
    except ImageNotFound:
        say(f"[{name}] {locked} is not here: building on {BASES[name]} by its tag")
        return BASES[name]
    return locked


def _build(client: Any, name: str, prefix: str, built: dict[str, Image]) -> Image:
    from docker.errors import APIError

    revision = commit()
    tag = f"{prefix}mlgo-{name}:{revision[:12]}{'-dirty' if _dirty() else ''}"
    say(f"[{name}] building {tag}")
    base = _base(client, name)
    arguments = {
        "BASE": base,
        "VERSION": version("mlgo-pipeline"),
        "REVISION": revision,
        "CREATED": _committed_at(),
    }
    if below := ON_IMAGE.get(name):
        arguments[below.upper()] = built[below].tag
    last: list[str] = []
    try:
        stream = client.api.build(
            path=str(ROOT), dockerfile=f"docker/{name}/Dockerfile", tag=tag, buildargs=arguments, rm=True, decode=True
        )
        for event in stream:
            if "error" in event:
                said = "\n".join(last[-15:])
                raise UserError(f"building {tag} failed: {event['error'].strip()}\n{said}", "see what it said above")
            for line in event.get("stream", "").splitlines():
                last.append(line)
                if line.startswith("Step "):
                    say(f"[{name}] {line[:150]}")
    except APIError as error:
        raise UserError(f"building {tag} failed: {error.explanation}", "see docker/README.md") from None
    found = client.images.get(tag)
    is_local = client.images.get(base).labels.get(LOCAL_BASE) == "true"
    return Image(tag, found.id, found.attrs["Size"], is_local, base)


def _push(client: Any, image: Image) -> Image:
    digest = ""
    for event in client.api.push(image.tag, stream=True, decode=True):
        if "error" in event:
            raise UserError(
                f"the registry refuses {image.tag}: {event['error']}",
                "docker login, and check that you may write there",
            )
        digest = event.get("aux", {}).get("Digest", digest)
    if not digest:
        raise UserError(f"the registry gave no digest for {image.tag}", "push it again")
    say(f"pushed {image.tag}: {digest}")
    return Image(image.tag, f"{image.tag.rpartition(':')[0]}@{digest}", image.bytes, image.local_base, image.base)


def commit() -> str:
    """$MLGO_GIT_COMMIT, for builders without a repository; else this checkout's commit, "unknown" outside of one."""
    return os.environ.get("MLGO_GIT_COMMIT") or _git("rev-parse", "HEAD") or "unknown"


def _dirty() -> bool:
    return bool(_git("status", "--porcelain", "--", "components", "pipelines", "docker", "pyproject.toml"))


def _committed_at() -> str:
    """Not the time of the build: the same commit makes the same labels, and its layers are found again."""
    return _git("log", "-1", "--format=%cI") or datetime.now(UTC).isoformat(timespec="seconds")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _instruction(created_by: str) -> str:
    text = created_by.removeprefix("/bin/sh -c ").removeprefix("#(nop)").strip()
    return " ".join(text.split())[:90] or "base image"
