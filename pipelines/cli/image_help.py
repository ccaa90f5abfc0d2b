"""Help of the container images: what `docker run IMAGE --help` prints, where $MLGO_IMAGE names the image."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from components.platform.errors import UserError
from components.platform.launcher.images import IMAGES
from components.platform.launcher.registry import steps_in


@dataclass(frozen=True)
class ImageHelp:
    """Help of one image.

    Attributes:
        description: what the image is for, and what it does not contain.
        steps: steps whose dependencies it has.
        groups: commands of mlgo that work in it, except steps.
        examples: (comment, arguments of mlgo, as in a shell).
        entry: beginning of the command, in an image without an entry point.
    """

    description: str
    steps: tuple[str, ...]
    groups: tuple[str, ...]
    examples: tuple[tuple[str, str], ...]
    entry: str = ""


IMAGE_HELP = {
    "toolchain": ImageHelp(
        description="""\
Build clangs that log decisions or embed a policy, turn code into corpora, evaluate policies, and tune programs.

The image contains clang and LLVM's libraries, but not TensorFlow: policies are trained in mlgo-training. To extract a
corpus from a build of your own, mount the code at the path that compile_commands.json names.""",
        steps=steps_in("toolchain"),
        groups=("retrain", "storage"),
        examples=(
            ("Build a training clang.", "toolchain --mode training --output training"),
            ("Make a corpus of a built-in recipe.", "corpus build --recipe demo --output corpus"),
            ("Build a clang that embeds a policy.", "toolchain --mode release --policy policy --output release"),
            (
                "Compare the policy with the heuristic on held-out modules.",
                "evaluation --corpus corpus --toolchain training --warmstart warmstart --policy policy --output report",
            ),
            ("Download the release clang of a pipeline.", "storage download gs://my-bucket/runs/7/release clang"),
        ),
    ),
    "clang": ImageHelp(
        description="""\
Build C and C++ smaller, by a clang with the pretrained policies.

The image is mlgo-toolchain with that clang, and with gcc, make, CMake, Ninja, Meson and autotools. `clang`, `make` and
`sh` run, too, in place of a command of mlgo.""",
        steps=steps_in("clang"),
        groups=("storage",),
        examples=(
            ("Build a project by the smallest of several compilers and flags.", "shrink -- make -j8"),
            ("Estimate the gain of a build, before any.", "forecast --compile-commands build"),
        ),
    ),
    "sdk": ImageHelp(
        description="""\
Build LLVM from source: static libraries, headers, clang and lld, from which mlgo-toolchain links clangs.

The image is mlgo-toolchain with another set of commands. A build takes hours on a laptop; keep the cache, and an
interrupted build continues.""",
        steps=steps_in("sdk"),
        groups=("storage",),
        examples=(
            (
                "Build LLVM from a source tree, with two code generators.",
                "toolchain --mode sdk --llvm-source llvm-project --targets X86,ARM --output sdk",
            ),
            (
                "Build a release of LLVM, with all code generators.",
                "toolchain --mode sdk --llvm-source git:llvmorg-19.1.7 --targets all --output gs://my-bucket/sdk",
            ),
        ),
    ),
    "training": ImageHelp(
        description="""\
Record the decisions of LLVM's heuristic, and train policies.

The image contains TensorFlow, but not LLVM: mlgo-toolchain builds the training clang and the corpus.""",
        steps=steps_in("training"),
        groups=("storage",),
        examples=(
            ("Record the heuristic's decisions.", "trace --corpus corpus --toolchain training --output trace"),
            ("Compute the quantiles of features.", "vocab --trace trace --output vocab"),
            (
                "Train a policy that imitates the heuristic.",
                "warmstart --trace trace --vocab vocab --toolchain training --preset demo --output warmstart",
            ),
            (
                "Train by reinforcement learning.",
                "ppo --corpus corpus --toolchain training --trace trace --warmstart warmstart --preset demo \\\n"
                "      --root-dir checkpoints --output policy",
            ),
        ),
    ),
    "cluster": ImageHelp(
        description="""\
Head and workers of a Ray cluster that trains policies: mlgo-training with Ray.

KubeRay starts the containers, for a RayJob that `mlgo ppo --workers rayjob` submits. `ray` and `python` are the
node's, without TensorFlow; `mlgo` is the trainer's, with it.""",
        steps=steps_in("cluster"),
        groups=("storage",),
        examples=(
            (
                "Try the image: train with Ray on one machine.",
                "ppo --workers ray --corpus corpus --toolchain training --trace trace --warmstart warmstart \\\n"
                "      --preset tiny --root-dir checkpoints --output policy",
            ),
        ),
        entry="mlgo ",
    ),
}

_DOCKER_RUN = """\
docker run --rm --read-only --tmpfs /tmp:exec --shm-size 2g --user "$(id -u):$(id -g)" \\
    -v "$PWD:/data" -w /data mlgo-{image}:TAG {entry}"""
_CONTAINER = """\
Container:
  --read-only        The root file system may be read-only: commands write to --output, /tmp and /dev/shm only.
  --tmpfs /tmp:exec  Temporary files and the cache, in memory; `exec`, because compiled policies are loaded from it.
  --shm-size 2g      Compiles keep their scratch files in /dev/shm if it has 1 GB, otherwise in /tmp.
  --user UID:GID     Any user works, and owns the output.  [default: 1000:1000]
  -v "$PWD:/data"    Inputs and outputs. Artifacts that are gs:// or s3:// URIs need no mount.
  -v DIR:/cache -e MLGO_CACHE_DIR=/cache
                     Keep downloads and compiled objects for the next container. The user must be able to write DIR."""
_ENVIRONMENT = """\
Environment (-e NAME=VALUE; -e NAME passes on your own):
  MLGO_CACHE_DIR                  Directory of the cache.  [default: /tmp/mlgo-cache]
  GOOGLE_APPLICATION_CREDENTIALS  Key file for gs://, mounted with -v /path/to/key.json:/key.json:ro.
  STORAGE_EMULATOR_HOST           http://HOST:PORT of an emulator, in place of Cloud Storage.
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
                                  Credentials for s3://.
  AWS_REGION                      Region of the bucket, on Amazon S3.
  AWS_ENDPOINT_URL_S3             http://HOST:PORT of another server for s3://, such as MinIO or SeaweedFS.
  MLGO_COMPILE_SANDBOX            landlock, bubblewrap or none.  [default: the first that works in the container]
  MLGO_TRUST_CORPUS               1: compile corpora that are named although nothing confines compiles.
  MLGO_LOG_FORMAT                 timestamps: begin lines with their time and level.  [default: plain]"""


def current_image() -> str:
    """Return the name of the container image that this process runs in; "" outside of this project's images."""
    name = os.environ.get("MLGO_IMAGE", "")
    return name if name in IMAGE_HELP else ""


def not_in_image(image: str, command: str) -> UserError:
    """Return the error that an image does not have a command of mlgo; it names the image that has it."""
    others = [IMAGES[name] for name, entry in IMAGE_HELP.items() if command in (*entry.steps, *entry.groups)]
    return UserError(
        f"the image {IMAGES[image]} does not have the command {command}",
        f"use the image {others[0]}" if others else "no image has it: install mlgo-pipeline, see README.md",
    )


def image_usage(image: str) -> str:
    """Return the command line that runs a command in the image."""
    return _docker_run(image) + "COMMAND [ARGS]..."


def image_help(image: str, commands: Iterable[tuple[str, str]]) -> str:
    """Return the help of the image, without its usage.

    Args:
        commands: commands of the image, each with its short help.
    """
    table = dict(commands)
    width = max(map(len, table))
    entry = IMAGE_HELP[image]
    sections = (
        entry.description,
        "Commands (COMMAND --help says more):\n"
        + "\n".join(f"  {name:{width}}  {text}" for name, text in table.items()),
        _CONTAINER,
        _ENVIRONMENT,
        f'Examples, with a shell function that runs the image:\n  mlgo() {{ {_docker_run(image)}"$@"; }}',
        "\n".join(f"  # {comment}\n  mlgo {arguments}" for comment, arguments in entry.examples),
    )
    return "\n\n".join(sections)


def _docker_run(image: str) -> str:
    return _DOCKER_RUN.format(image=image, entry=IMAGE_HELP[image].entry)
