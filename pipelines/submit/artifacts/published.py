"""The artifacts that the tasks of a run on a server have published.

Vertex AI names them in the PipelineJob. KFP's API has no artifacts (2.17), so they are looked for where KFP's driver
puts them, or a step with an artifact root: see KfpRun.artifact_folder. Drivers of older versions have no UUID in the
path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from components.platform.errors import UserError
from components.platform.launcher.kfp_locations import UUID
from components.platform.storage import MANIFEST
from components.platform.storage.directory import make_directory
from components.platform.storage.object_storage.fetch import fetch, fetch_file
from components.platform.storage.object_storage.s3 import ENDPOINT_VARIABLES
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.output_files import replace_bytes
from components.platform.storage.uri import S3, USAGE, ObjectUri, parse_location
from pipelines.parameters.on_server import DEFAULT_ROOT_SECRET, MINIO
from pipelines.spec_changes import dags
from pipelines.submit.kfp_run import KfpRun
from pipelines.submit.polling import ServerRun

_NEVER = datetime.min.replace(tzinfo=UTC)
_STOCK_ROOT = "minio://mlpipeline/v2/artifacts"
"""Default pipeline root of KFP's manifests."""


@dataclass(frozen=True)
class Published:
    """An artifact that a task has published.

    Attributes:
        kind: KFP's type, such as Model, Dataset or HTML.
        uri: its directory, which has a manifest, or its only file, such as a page.
    """

    task: str
    name: str
    kind: str
    uri: str

    def download(self, directory: Path) -> Path:
        """Put the artifact into `directory` as TASK/NAME, where it appears when it is complete; return that path."""
        target = directory.absolute() / self.task / self.name
        uri = parse_location(self.uri)
        if not isinstance(uri, ObjectUri):
            raise UserError(f"{self.task}/{self.name} is at {uri}, not in object storage", f"artifacts are at {USAGE}")
        if store_of(uri).head(uri) is None:
            return fetch(uri, target)
        content = fetch_file(uri).read_bytes()
        make_directory(target.parent)
        replace_bytes(target, content)
        return target


def published_artifacts(run: ServerRun, root: str = "") -> list[Published]:
    """Return what the tasks of a run have published, in the order of tasks. UserError if that cannot be known.

    Args:
        root: pipeline root of a run on KFP that has the server's default; empty for the run's own.
    """
    if run.outputs is not None:
        return [
            Published(task, name, _short_type(artifact), str(artifact["uri"]))
            for task, outputs in run.outputs.items()
            for name, artifact in outputs.items()
        ]
    assert isinstance(run, KfpRun)
    folder, declared = _folder(run, root), _declared_types(run.spec)
    found = []
    for task in run.tasks:
        if task.state and not task.reused and (kinds := declared.get(task.name)):
            newest = newest_artifacts(folder / task.name)
            found += [
                Published(task.name, name, kind, str(newest[name])) for name, kind in kinds.items() if name in newest
            ]
    return found


def newest_artifacts(folder: ObjectUri) -> dict[str, ObjectUri]:
    """Return the artifacts below a task's folder by name, each of the newest attempt that finished it.

    An artifact is a directory with a manifest, or a file.
    """
    newest: dict[str, tuple[datetime, str]] = {}
    for stored in store_of(folder).objects(folder):
        first, *rest = stored.name.removeprefix(f"{folder.path}/").split("/")
        name, *inner = rest if rest and re.fullmatch(UUID, first) else (first, *rest)
        if inner in ([], [MANIFEST]):
            place = stored.name.removesuffix(f"/{MANIFEST}")
            newest[name] = max(newest.get(name, (_NEVER, "")), (stored.updated or _NEVER, place))
    return {name: ObjectUri(folder.scheme, folder.bucket, place) for name, (_updated, place) in newest.items()}


def require_folder(run: KfpRun, folder: str, unknown: str, elsewhere: str) -> ObjectUri:
    """Return the folder of a run's artifacts, "" if it is unknown, as a place in object storage.

    Args:
        unknown, elsewhere: remedies if it is unknown, and if it is not in object storage.
    """
    if not folder:
        raise UserError(
            f"KFP at {run.host} does not say where the artifacts of the run {run.run_id} are: it has the server's "
            "default pipeline root, which is not in the API",
            unknown,
        )
    location = parse_location(folder)
    if not isinstance(location, ObjectUri):
        raise UserError(f"the artifacts of the run {run.run_id} are at {folder}, not in object storage", elsewhere)
    return location


def _folder(run: KfpRun, root: str) -> ObjectUri:
    """Return the folder of a run's artifacts in object storage that this process can read. UserError if unknown."""
    folder = run.artifact_folder_below(root) if root else run.artifact_folder
    if folder.startswith(f"{MINIO}://"):
        if not any(map(os.environ.get, ENDPOINT_VARIABLES)):
            raise UserError(
                f"the artifacts of the run {run.run_id} are at {folder}, in the cluster's own object storage",
                "kubectl port-forward -n kubeflow svc/seaweedfs 9000 (older: minio-service), and set "
                f"{ENDPOINT_VARIABLES[0]}=http://localhost:9000 and the keys in the Secret {DEFAULT_ROOT_SECRET}",
            )
        folder = f"{S3}://{folder.removeprefix(f'{MINIO}://')}"
    unknown = f"pass --pipeline-root URI; that of KFP's manifests is {_STOCK_ROOT}"
    return require_folder(run, folder, unknown, f"pass {USAGE}")


def _declared_types(spec: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the type of each output artifact of each container task of a PipelineSpec, by task and name."""
    declared = {}
    for tasks in dags(spec):
        for name, task in tasks.items():
            component = spec["components"][task["componentRef"]["name"]]
            if "executorLabel" in component:
                outputs = component.get("outputDefinitions", {}).get("artifacts", {})
                declared[name] = {key: _short_type(output["artifactType"]) for key, output in outputs.items()}
    return declared


def _short_type(described: Mapping[str, Any]) -> str:
    return str(described.get("schemaTitle") or "Artifact").removeprefix("system.")
