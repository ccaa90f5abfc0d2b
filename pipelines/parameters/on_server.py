"""Checks of parameters that hold on a server, or in containers: what steps there can reach."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from components.core.formats.strategy import DEBIAN_SOURCE_MAJORS, Strategy, release_strategy
from components.core.projects.recipe import load_recipes
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.downloads.archive import is_archive_url
from components.platform.storage.object_storage.object_store import StorageError
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import GS, KFP_LOCAL, S3, USAGE, ObjectUri, in_object_storage, parse_location
from pipelines.local.cache_inputs import fetch_recipe
from pipelines.parameters.parameter import as_parameter
from pipelines.parameters.tables import BY_NAME, PLACES

IMAGE_LLVM_MAJOR = 19
"""Version of LLVM in the image toolchain (docker/requirements/apt-toolchain.txt); the image training has none."""
MINIO = "minio"
DEFAULT_ROOT_SECRET = "mlpipeline-minio-artifact"
"""Secret with the keys of KFP's default root, which its launcher reads as the account of the step."""
KFP_SCHEMES = (MINIO, "s3")
"""Schemes of object storage that KFP's launcher copies artifacts from and to."""
_DIRECT_ROOT = "--artifact-root s3://BUCKET/PATH or --pipeline-root gs://BUCKET/PATH"


def require_shared(state: str, option: str, location: str) -> None:
    """Raise UserError if the state is in object storage, but the policy that it would name is not.

    Args:
        option: the option that gives `location`, for the message.
    """
    if location.startswith(f"{KFP_LOCAL}://"):
        raise UserError(
            f"the policy is at {location}, in this pod, from which Kubeflow Pipelines copies it: the next run could "
            "not read it",
            f"run the pipeline with {_DIRECT_ROOT}",
        )
    if in_object_storage(state) and not in_object_storage(location):
        raise UserError(
            f"the state in {state} is shared, but a policy on this machine is not",
            f"pass {option} {USAGE}, a different one for each run",
        )


def check_bucket_exists(root: str, option: str = "--pipeline-root") -> None:
    """Read below the root of the artifacts with the user's credentials.

    Steps may have other credentials, so where these do not suffice, or nothing answers, the user is only warned.

    Raises:
        UserError: there is no such bucket.
    """
    location = parse_location(root)
    assert isinstance(location, ObjectUri)
    # List a folder that nobody has: the root may contain many objects.
    folder = location / f"mlgo-check-{secrets.token_hex(4)}"
    try:
        store_of(folder).objects(folder)
    except StorageError as error:
        problem = error.problem.replace(str(folder), root)
        say(f"warning: {option} is not checked, the steps' account may be another: {problem}")
    except UserError as error:
        raise UserError(
            f"{option} {error.problem.replace(str(folder), root)}",
            "create the bucket, or correct its name",
        ) from None


def check_state_on_server(state: str, root: str, own: str) -> None:
    """Raise UserError unless steps on a server can read and write the state, and others can read what they promote.

    Args:
        root, own: --pipeline-root and --artifact-root; "" for none.
    """
    if not in_object_storage(state):
        raise UserError(f"the state {state} is on this machine, but the steps run on others", f"name it {USAGE}.json")
    if not own and root.partition("://")[0] in KFP_SCHEMES:
        raise UserError(
            f"--pipeline-root {root}: Kubeflow Pipelines copies artifacts there from pods, so the next run "
            "could not read the policy that this one deploys",
            f"pass {_DIRECT_ROOT}",
        )
    require_shared(state, "--pipeline-root", own or root)


def check_places_on_server(values: Mapping[str, Any], mounts: Collection[str] | None) -> None:
    """Raise UserError if a parameter names a path of this machine, which steps on a server do not see.

    An absolute path that does not exist here is accepted: it may be in an image.

    Args:
        values: the pipeline's parameters, with paths as the user wrote them.
        mounts: where volumes are mounted in steps; None if that is unknown, so that each absolute path may be on one.
    """
    for name in PLACES:
        location = str(values.get(name, ""))
        if not location or location in BY_NAME[name].words or in_object_storage(location):
            continue
        reference = BY_NAME[name].reference
        if reference and reference.archives and is_archive_url(location):
            continue
        seen = mounts is None or any(Path(location).is_relative_to(mount) for mount in mounts)
        if not location.startswith("/") or (os.path.exists(location) and not seen):
            raise UserError(
                f"{as_parameter(name, location)} is a path of this machine, but the steps run on others",
                f"copy it to object storage, and name it {USAGE}, or pass its absolute path on a volume that "
                f"{'--overrides mounts' if mounts is not None else 'the stored pipeline mounts'}",
            )
    clang = str(values.get("clang", ""))
    if "/" in clang and not clang.startswith("/"):
        raise UserError(
            f"{as_parameter('clang', clang)} is relative to a directory of this machine, but the steps run on others",
            "pass its absolute path in the images, or on a volume that all steps mount",
        )


def check_llvm_in_images(values: Mapping[str, Any]) -> None:
    """Raise UserError if a run whose steps are containers needs an LLVM that the images lack.

    Args:
        values: the pipeline's parameters.
    """
    strategy: Strategy = values.get("strategy") or "sdk"
    major = int(float(values.get("llvm_major") or IMAGE_LLVM_MAJOR))
    if release_strategy(strategy, major) == "plugin":
        raise UserError(
            f"{as_parameter('strategy', strategy)} with LLVM {major}: a plugin runs in an installed clang, and the "
            "images for training have none",
            f"pass {as_parameter('strategy', 'sdk')}, or run the steps on this machine: mlgo run",
        )
    lacking: dict[str, object] = {}
    have = []
    if major != IMAGE_LLVM_MAJOR:
        lacking["llvm_major"] = major
        have.append(f"LLVM {IMAGE_LLVM_MAJOR} only")
    if values.get("targets") == "all":
        lacking["targets"] = "all"
        have.append("the code generator of their own processor only")
    if lacking and not values.get("sdk"):
        source = {} if major in DEBIAN_SOURCE_MAJORS else {"llvm_source": f"git:llvmorg-{major}.X.Y"}
        build = " ".join(as_parameter(name, value) for name, value in {**lacking, **source}.items())
        raise UserError(
            f"{' '.join(as_parameter(name, value) for name, value in lacking.items())}: the images have "
            f"{' and '.join(have)}",
            f"pass {as_parameter('sdk', USAGE)}, the output of mlgo pipeline submit --pipeline sdk {build}, or run "
            "the steps on this machine: mlgo run",
        )


def check_recipe_in_images(values: Mapping[str, Any]) -> None:
    """Raise UserError if a run whose steps are containers should build Debian packages: that needs root and mounts.

    A recipe that cannot be read here is left to the step: its path may be on a volume, its URI for another account.

    Args:
        values: the pipeline's parameters.
    """
    recipe = str(values.get("recipe") or "")
    if not recipe:
        return
    try:
        projects = load_recipes(fetch_recipe(recipe)).projects
    except UserError:
        return
    if packages := [project.name for project in projects if project.debian]:
        more = f" and {len(packages) - 1} more" if len(packages) > 1 else ""
        raise UserError(
            f"{as_parameter('recipe', recipe)} builds Debian packages ({packages[0]}{more}) in a system of their own, "
            "which takes root and mounts, and containers of steps have neither",
            f"build the corpus on a machine, mlgo corpus obtain --recipe {recipe} --output {USAGE}, and pass "
            f"{as_parameter('corpus', USAGE)}",
        )


def check_cloud_root(root: str, vertex: bool = True, rayjob: bool = False) -> None:
    """Raise UserError unless all steps on a server can exchange artifacts through --pipeline-root.

    Args:
        vertex: the server is Vertex AI, where that is Cloud Storage only. KFP's launcher also copies artifacts between
            minio:// or s3:// and the pods of the steps.
        rayjob: a step runs on a Ray cluster, whose nodes get no such copies.
    """
    scheme, _separator, rest = root.partition("://")
    if scheme in KFP_SCHEMES and not vertex:
        try:
            parse_location(f"{S3}://{rest.partition('?')[0]}")  # the names are S3's; a query is KFP's configuration
        except UserError:
            problem = f"--pipeline-root {root} has no valid bucket and path"
            raise UserError(problem, f"write it as {scheme}://BUCKET/PATH") from None
        if rayjob:
            raise UserError(
                f"--param workers=rayjob with --pipeline-root {root}: the nodes of a Ray cluster read artifacts in "
                "gs://, but Kubeflow Pipelines copies others only to the step's pod",
                f"pass {_DIRECT_ROOT}, or use workers=local",
            )
        return
    if scheme != GS:
        option = f"--pipeline-root {root}" if root else "no --pipeline-root"
        storage = "Cloud Storage" if vertex else "object storage"
        more = "" if vertex else ", minio://BUCKET/PATH or s3://BUCKET/PATH"
        raise UserError(
            f"{option}: on a server, steps exchange artifacts through {storage}",
            f"pass --pipeline-root gs://BUCKET/PATH{more}",
        )
    parse_location(root)
