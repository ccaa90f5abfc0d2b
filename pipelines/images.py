"""Build and push the steps' container images with the docker SDK; references name them by content.

Format of build/images.json (IMAGES_JSON), which `mlgo pipeline` reads:

    {"toolchain": {"tag": "mlgo-toolchain:5d41402abc4b", "reference": "sha256:... or REGISTRY/...@sha256:...",
                   "bytes": 1012345678, "local_base": false, "base": "debian:bookworm-slim@sha256:..."},
     "training": {...}}

`reference` is immutable, because KFP caches by image name: the registry's digest of a pushed image, the local image ID
otherwise. Tags are for people.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER, STEPS
from components.platform.processes.output import capture, read_output
from components.platform.storage.directory import make_directory
from components.platform.storage.input_files import MissingFile, read_json, typed
from components.platform.storage.output_files import replace_text
from pipelines.local.source_digests import ROOT

IMAGES_JSON = Path("build/images.json")
LOCAL_BASE = "mlgo.local-base"
"""Label of base images that docker/base-image made, and of the images on them."""
_CREDENTIALS = "mlgo.local-base-credentials"
"""Their label with the files in them that have credentials in a URL, with commas between."""
_DEBIAN = "debian:bookworm-slim"
_PYTHON = "python:3.11-slim-bookworm"
BASES = {"toolchain": _DEBIAN, "sdk": _DEBIAN, "clang": _DEBIAN, "training": _PYTHON, CLUSTER: _PYTHON}
"""Base image of each image; the keys are the folders of docker/ that have a Dockerfile."""
_DOCKER = ROOT / "docker"
BASES_LOCK = _DOCKER / "requirements" / "base-images.txt"
"""One line per base image: NAME:TAG@sha256:DIGEST, or NAME:TAG if the digest has not been looked up."""
ON_IMAGE = {"sdk": "toolchain", "clang": "toolchain", CLUSTER: "training"}
"""Images that are built on another of this project's images, from the same commit."""
_LAYERS_BYTES = {"toolchain": 1.2e9, "clang": 0.5e9, "training": 1.4e9}
"""Size of an image's own layers. Building it takes more, unless it is cached."""
_SOURCES = ("components", "pipelines", "docker", "pyproject.toml")
_TIMEOUT_S = 1800
_BY_DIGEST = re.compile(r"[\w.:/-]+@sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Image:
    """A built image.

    Attributes:
        bytes: unpacked size.
        local_base: whether its base image was made on this machine; such an image is pushed only on request.
        base: base image, NAME:TAG@sha256:DIGEST if the lock has a digest and a registry had the image.
    """

    tag: str
    reference: str
    bytes: int
    local_base: bool
    base: str = ""


def build_images(names: tuple[str, ...], registry: str, output: Path) -> dict[str, Image]:
    """Build the images `names`, tag them by git commit, and write their references to `output`.

    Args:
        names: keys of BASES; images that these are built on are built, too. Empty: the images of the steps.
        registry: prefix of the tags, "europe-docker.pkg.dev/PROJECT/REPO"; empty for this machine.

    Raises:
        UserError: the registry cannot begin an image name, what a build needs is missing (before the first one begins),
            a base image can neither be pulled nor made, or a build fails.
    """
    from docker.utils.build import match_tag

    prefix = f"{registry}/" if registry else ""
    if not match_tag(f"{prefix}mlgo"):
        raise UserError(
            f"--registry {registry!r} is not a valid prefix of an image name",
            "write it as HOST/PROJECT/REPOSITORY, in lower case: europe-docker.pkg.dev/my-project/mlgo",
        )
    included = {*(names or STEPS)}
    included |= {ON_IMAGE[name] for name in included if name in ON_IMAGE}
    ordered = tuple(name for name in BASES if name in included)
    before = read_images(output) if output.exists() else {}
    if not (_DOCKER / ordered[0] / "Dockerfile").is_file():
        raise UserError(
            "images are built from a clone of the repository, and this mlgo is an installed package",
            "run mlgo images build in a clone; with pushed images, pass their names: --images NAME=REFERENCE,...",
        )
    _require_tools({*ordered} - before.keys())
    with docker_client() as client:
        ensure_bases(ordered)
        images: dict[str, Image] = {}
        for name in ordered:
            images[name] = _build(client, name, prefix, images)
    # Drop images whose parent was rebuilt differently: they would run the code of another commit.
    outdated = {name for name, parent in ON_IMAGE.items() if parent in images and before.get(parent) != images[parent]}
    write_images(output, {name: image for name, image in before.items() if name not in outdated} | images)
    return images


def push_images(names: tuple[str, ...], output: Path, allow_bootstrapped_base: bool = False) -> dict[str, Image]:
    """Push the images that `build_images` built, and replace the references in `output` with the registry's digests.

    Args:
        names: keys of BASES. Empty: all built images.
        allow_bootstrapped_base: also push images whose base image docker/base-image made on this machine.

    Raises:
        UserError: an image is not built, its base image was made on this machine and that is not allowed or has
            credentials in it, or the registry refuses it. Nothing is pushed unless all images can be.
    """
    images = read_images(output)
    names = names or tuple(images)
    for name in names:
        if name not in images:
            raise UserError(f"the image {name} is not built", f"run mlgo images build --image {name}")
        if images[name].local_base and not allow_bootstrapped_base:
            raise UserError(
                f"{images[name].tag} was built on a base image that docker/base-image made on this machine: it has no "
                f"digest that others can check, and {_OF_THIS_MACHINE} are in it",
                "build and push it on a machine that can reach a registry; for a private registry, whose readers may "
                "see these, pass --allow-bootstrapped-base",
            )
    with docker_client() as client:
        for name in names:
            if images[name].local_base:
                _require_no_credentials(client, name, images[name])
        for name in names:
            image = images[name]
            if image.local_base:
                say(f"warning: {image.tag} was built on a base made here: {_OF_THIS_MACHINE} are in it")
            elif "@sha256:" not in image.base:
                base = image.base or BASES[name]
                say(f"warning: {image.tag} was built on {base} by tag; run make lock-images to pin its digest")
            images[name] = _push(client, image)
    write_images(output, images)
    return {name: images[name] for name in names}


_OF_THIS_MACHINE = "this machine's apt sources, certificate authorities and pip configuration"


def _require_no_credentials(client: Any, name: str, image: Image) -> None:
    """Raise UserError if an image on a base made here has credentials, or nobody has looked for them."""
    from docker.errors import ImageNotFound

    base = BASES[name]
    remake = f"docker rmi {base} && mlgo images build --image {name}"
    try:
        files = client.images.get(image.tag).labels.get(_CREDENTIALS)
    except ImageNotFound:
        raise UserError(f"{image.tag} is not on this machine", f"run mlgo images build --image {name}") from None
    if files is None:
        problem = (
            f"the base image of {image.tag} was made by an older version, which did not look for credentials in it"
        )
        raise UserError(problem, remake)
    if files:
        raise UserError(
            f"{image.tag} has {files} of this machine in it, with a user or a password in a URL: whoever may pull the "
            "image can read it",
            f"remove that from {files.replace(',', ' and ')} here, and build the image again: {remake}",
        )


def given_images(text: str) -> dict[str, Image]:
    """Return the images that --images names: in a file as images.json, or in the text itself as NAME=REFERENCE,...

    Raises:
        UserError: as read_images; or a name is not the name of an image, or a reference has no digest.
    """
    # Path.exists raises an error for a text that is too long for a path.
    if "=" not in text or os.path.exists(text):
        return read_images(Path(text))
    images = {}
    for pair in text.split(","):
        name, _equals, reference = pair.strip().partition("=")
        if name not in BASES or not _BY_DIGEST.fullmatch(reference):
            raise UserError(
                f"--images: {pair!r} is not the name of an image, =, and a reference with a digest",
                f"for example toolchain=HOST/mlgo-toolchain@sha256:DIGEST; names: {', '.join(BASES)}",
            )
        images[name] = Image(reference, reference, 0, False)
    return images


def read_images(path: Path) -> dict[str, Image]:
    """Read images.json. UserError if the file does not exist, or is not a list of images."""
    try:
        document = read_json(path, "make images")
    except MissingFile:
        raise UserError(
            f"no images are built: {path} does not exist",
            "run mlgo images build in a clone, or pass --images NAME=REFERENCE@DIGEST,... where a command has it",
        ) from None
    return typed(document, dict[str, Image], path, "a list of images", "make images")


def write_images(path: Path, images: dict[str, Image]) -> None:
    """Write images.json, atomically."""
    make_directory(path.parent, path)
    replace_text(path, json.dumps({name: asdict(image) for name, image in sorted(images.items())}, indent=1) + "\n")


@contextmanager
def docker_client() -> Iterator[Any]:
    """Yield a client of the docker daemon. UserError if the daemon does not answer."""
    import docker
    import requests
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=_TIMEOUT_S)
        client.ping()
    except (DockerException, requests.RequestException) as error:
        raise UserError(
            f"the docker daemon does not answer: {str(error).splitlines()[0]}",
            "start it (sudo systemctl start docker, or dockerd &); check DOCKER_HOST and that you are in group docker",
        ) from None
    with closing(client):
        yield client


def layers(client: Any, image: Image) -> list[tuple[int, str]]:
    """Return (bytes, instruction that made it) of each layer that is not empty, the base first."""
    history = client.images.get(image.reference).history()
    found = []
    for entry in reversed(history):
        text = entry["CreatedBy"].removeprefix("/bin/sh -c ").removeprefix("#(nop)")
        if entry["Size"]:
            found.append((entry["Size"], " ".join(text.split())[:90] or "base image"))
    return found


def _require_tools(new: set[str]) -> None:
    """Check everything that builds need of this machine, before the first one begins.

    Whether a registry answers is seen only then. So what it takes to make a base image is named here if other things
    are missing, too; docker/base-image checks it before it makes the first one.

    Args:
        new: images that were not built here before.

    Raises:
        UserError: something is missing; the message names all of it.
    """
    missing: list[UserError] = []
    if shutil.which("docker") is None:
        missing.append(UserError("the program docker is not installed", "sudo apt-get install docker.io"))
    try:
        with docker_client() as client:
            missing += _disk_problem(client, new)
    except UserError as error:
        missing.append(error)
    if not missing:
        return
    problems = [error.problem for error in missing]
    remedies = [error.remedy for error in missing]
    done = capture([_DOCKER / "bare-debian", "--check"])
    if done.returncode != 0:
        bootstrap = _script_error(done.stderr)
        problems.append(f"if no registry answers, {bootstrap.problem}")
        remedies.append(f"then also {bootstrap.remedy}")
    raise UserError("; ".join(problems), "; ".join(remedies))


def _disk_problem(client: Any, new: set[str]) -> list[UserError]:
    """Return the error that the daemon's directory, if it is on this machine, has not enough free space."""
    directory = client.info().get("DockerRootDir") or ""
    if not os.path.isdir(directory) or not os.environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        return []
    needed, free = sum(_LAYERS_BYTES.get(name, 0.0) for name in new), shutil.disk_usage(directory).free
    if free >= needed:
        return []
    sizes = f"{free / 1e9:.1f} GB of free space, and the images alone take {needed / 1e9:.1f} GB"
    return [UserError(f"docker's directory {directory} has {sizes}", "free some: docker system prune")]


def _script_error(text: str) -> UserError:
    """Return the error that a script of docker/ printed."""
    problem, _newline, remedy = text.strip().removeprefix("error: ").partition("\n  remedy: ")
    return UserError(problem, remedy)


def ensure_bases(names: tuple[str, ...]) -> None:
    """Run docker/base-image for the bases of `names`."""
    command = [str(_DOCKER / "base-image"), *(BASES[name] for name in names)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode != 0:
        raise _script_error(done.stderr)


def locked_base(base: str) -> str:
    """Return the reference of a base image from the lock file. UserError if the lock file does not have it."""
    for line in BASES_LOCK.read_text(encoding="utf-8").splitlines():
        reference = line.partition("#")[0].strip()
        if reference.partition("@")[0] == base:
            return reference
    raise UserError(f"{base} is not in {BASES_LOCK}", "add it, and run make lock-images")


def _base(client: Any, name: str) -> str:
    """Return the reference of the base image of `name`; docker/base-image has run.

    That is the lock's digest if the image is on this machine under it. An image that was made here or loaded from an
    archive has no digest, so its tag is returned.
    """
    from docker.errors import ImageNotFound

    locked = locked_base(BASES[name])
    try:
        client.images.get(locked)
    except ImageNotFound:
        say(f"[{name}] {locked} is not on this machine: building on {BASES[name]} by tag")
        return BASES[name]
    return locked


def _build(client: Any, name: str, prefix: str, built: dict[str, Image]) -> Image:
    from docker.errors import APIError

    revision = commit()
    changed = _git("status", "--porcelain", "--", *_SOURCES)
    tag = f"{prefix}mlgo-{name}:{revision[:12]}{'-dirty' if changed else ''}"
    say(f"[{name}] building {tag}")
    base = _base(client, name)
    arguments = {
        "BASE": base,
        "VERSION": version("mlgo-pipeline"),
        "REVISION": revision,
        # The commit's time rather than the build's, so that one commit has the same labels and cached layers.
        "CREATED": _git("log", "-1", "--format=%cI") or datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if parent := ON_IMAGE.get(name):
        arguments[parent.upper()] = built[parent].tag
    last: list[str] = []
    try:
        stream = client.api.build(
            path=str(ROOT), dockerfile=f"docker/{name}/Dockerfile", tag=tag, buildargs=arguments, rm=True, decode=True
        )
        for event in stream:
            if "error" in event:
                tail = "\n".join(last[-15:])
                raise UserError(f"building {tag} failed: {event['error'].strip()}\n{tail}", "see its output above")
            for line in event.get("stream", "").splitlines():
                last.append(line)
                if line.startswith("Step "):
                    say(f"[{name}] {line[:150]}")
    except APIError as error:
        raise UserError(
            f"building {tag} failed: {error.explanation}",
            f"correct docker/{name}/Dockerfile, or see docs/pipeline.md, Container images",
        ) from None
    image = client.images.get(tag)
    is_local = client.images.get(base).labels.get(LOCAL_BASE) == "true"
    return Image(tag, image.id, image.attrs["Size"], is_local, base)


def _push(client: Any, image: Image) -> Image:
    digest = ""
    for event in client.api.push(image.tag, stream=True, decode=True):
        if "error" in event:
            raise UserError(
                f"the registry refuses {image.tag}: {event['error']}",
                "run docker login, and check that you may write there",
            )
        digest = event.get("aux", {}).get("Digest", digest)
    if not digest:
        raise UserError(f"the registry returned no digest for {image.tag}", "push it again")
    say(f"pushed {image.tag}: {digest}")
    return Image(image.tag, f"{image.tag.rpartition(':')[0]}@{digest}", image.bytes, image.local_base, image.base)


def commit() -> str:
    """Return $MLGO_GIT_COMMIT, which builders without a repository set, else this checkout's commit, else "unknown"."""
    return os.environ.get("MLGO_GIT_COMMIT") or _git("rev-parse", "HEAD") or "unknown"


def _git(*arguments: str) -> str:
    return read_output(["git", "-C", ROOT, *arguments], _TIMEOUT_S).strip()
