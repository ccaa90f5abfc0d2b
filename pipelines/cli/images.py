"""`mlgo images`: build and push the images of the steps."""

from __future__ import annotations

from pathlib import Path

import click

from components.platform.console import say
from components.platform.launcher.images import STEPS
from pipelines import images

_NAMES = click.Choice(sorted(images.BASES))
_OUTPUT = click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=images.IMAGES_JSON,
    show_default=True,
    help="File to write the image references to; the pipeline reads it.",
)


@click.group("images")
def images_group() -> None:
    """Build and push the container images of the steps, of a Ray cluster's nodes, and the one with the clang.

    \b
    Examples:
      mlgo images build
      mlgo images build --all --registry europe-docker.pkg.dev/my-project/mlgo
      mlgo images push
    """


@images_group.command()
@click.option(
    "--image", "names", type=_NAMES, multiple=True, help=f"Image to build; repeatable.  [default: {', '.join(STEPS)}]"
)
@click.option("--all", "everything", is_flag=True, help="Also build `cluster` and `clang`.")
@click.option("--registry", default="", metavar="PREFIX", help="Prefix of the tags: HOST/PROJECT/REPOSITORY.")
@_OUTPUT
def build(names: tuple[str, ...], everything: bool, registry: str, output: Path) -> None:
    """Build the images with the docker daemon, tagged by git commit.

    Base images are pulled; if no registry answers, docker/base-image makes them with debootstrap, as root. What is
    missing on this machine is named before the first build. The images `sdk` and `clang` are based on `toolchain`,
    `cluster` on `training`, which is then built, too. `cluster` is for a Ray cluster's nodes, `clang` for users who
    have docker only.

    \b
    Examples:
      mlgo images build --image training
      mlgo images build --all
    """
    built = images.build_images(tuple(images.BASES) if everything else names, registry.rstrip("/"), output)
    _show(built)
    say(f"references: {output}")


@images_group.command()
@click.option(
    "--image", "names", type=_NAMES, multiple=True, help="Image to push; repeatable.  [default: all built images]"
)
@click.option(
    "--allow-bootstrapped-base",
    is_flag=True,
    help="Also push images whose base docker/base-image made here, for a private registry: whoever may pull them can "
    "read this machine's apt sources, certificate authorities and pip configuration, and nobody else has their base.",
)
@_OUTPUT
def push(names: tuple[str, ...], allow_bootstrapped_base: bool, output: Path) -> None:
    """Push the images to the registry that they were built for, and record their digests.

    \b
    Examples:
      mlgo images build --registry europe-docker.pkg.dev/my-project/mlgo && mlgo images push
      # in a network without access to Docker Hub
      mlgo images build --registry registry.example:5000/mlgo && mlgo images push --allow-bootstrapped-base
    """
    images.push_images(names, output, allow_bootstrapped_base)
    say(f"references: {output}")


def _show(built: dict[str, images.Image]) -> None:
    with images.docker_client() as client:
        for name, image in built.items():
            say(f"{name}: {image.bytes / 1e9:.2f} GB, {image.tag}")
            for size_bytes, instruction in images.layers(client, image):
                if size_bytes > 1e6:
                    say(f"  {size_bytes / 1e6:7.1f} MB  {instruction}")
