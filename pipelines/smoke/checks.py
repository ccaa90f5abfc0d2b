"""The checks of the smoke test. Each uses the thing itself, from inside a step of the pipeline: see rows.Checks."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from components.platform.errors import UserError
from components.platform.launcher.images import IMAGES
from components.platform.processes.cgroup import available_memory, available_processors
from components.platform.processes.output import capture
from components.platform.processes.reaper import MEMORY_BYTES, MEMORY_FILE_SYSTEM
from components.platform.storage import require_artifact
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.object_store import NO_VERSION, StorageError, VersionConflict
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import REMOTE_SCHEMES, ObjectUri, display_path, parse_location
from pipelines.smoke.rows import FailedOnPurpose, NotTried
from pipelines.submit.kfp_client import HOST_VARIABLE, KfpAddress, KfpClient, version_numbers
from pipelines.submit.polling import NoAnswer

NO_REPETITION_SINCE = (2, 17)
"""The first version of KFP whose manifests tell Argo not to repeat a step that fails (retryPolicy: OnError)."""
_CLANG = "clang-19"
_TENSORFLOW_PROGRAM = "import tensorflow as tf; print(tf.__version__, int(tf.reduce_sum(tf.constant([1, 2]))))"
_ROOT_REMEDY = (
    "pass --pipeline-root gs://BUCKET/PATH, or on Kubeflow Pipelines --artifact-root s3://BUCKET/PATH, with its "
    "credentials in --overrides (docs/examples/kfp-seaweedfs.yaml)"
)


def check_image(expected: str) -> str:
    """Return what this container is. UserError if it is not the image of this project that the step asks for.

    Args:
        expected: a key of IMAGES.
    """
    actual = os.environ.get("MLGO_IMAGE", "")
    if actual and actual != expected:
        raise UserError(
            f"the step for {IMAGES[expected]} runs in {IMAGES.get(actual, actual)}",
            "correct --images, or build/images.json",
        )
    commit = os.environ.get("MLGO_GIT_COMMIT", "")[:12]
    return ", ".join(
        [
            IMAGES[actual] if actual else "no image of this project",
            *([f"commit {commit}"] if commit else []),
            f"Python {platform.python_version()}",
            f"user {os.getuid()}:{os.getgid()}",
            f"{available_processors()} processors",
            f"{available_memory() / 1e9:.1f} GB",
        ]
    )


def check_run_id(run_id: str) -> str:
    """Return the ID of the run, which the server fills in for a placeholder."""
    if not run_id:
        raise NotTried("a run on this machine has no ID")
    if "{{" in run_id:
        raise UserError(f"the server has left the placeholder {run_id} as it is", "use KFP 2.14 or newer, or Vertex AI")
    return run_id


def check_temporary_files() -> str:
    """Write and read a temporary file."""
    content = os.urandom(1 << 20)
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        if Path(file.name).read_bytes() != content:
            raise UserError(f"{file.name} has other content than was written", "check the disk of the node")
        return f"{shutil.disk_usage(file.name).free / 1e9:.1f} GB free in {tempfile.gettempdir()}"


def check_shared_memory(folder: Path = MEMORY_FILE_SYSTEM, needed_bytes: int = MEMORY_BYTES) -> str:
    """Return how much is free in memory that compiles use for scratch files. UserError if it is too little for that."""
    free = shutil.disk_usage(folder).free
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"probe")
    if free < needed_bytes:
        raise UserError(
            f"{free / 1e6:.0f} MB free in {folder}: compiles use {tempfile.gettempdir()} then, which may be slower",
            "KFP: shared_memory: 2Gi for the default of --overrides, and memory for it",
        )
    return f"{free / 1e9:.1f} GB free in {folder}"


def check_root(output: str) -> str:
    """Write, read and delete an object next to the step's output, with the step's own credentials.

    Args:
        output: place of the step's artifact, as the launcher gives it.

    Raises:
        NotTried: KFP copies the step's artifacts.
    """
    name = f".probe-{secrets.token_hex(4)}"
    location = parse_location(output)
    if isinstance(location, Path):
        probe = location.with_name(f"{location.name}{name}")
        probe.write_text(name)
        try:
            if probe.read_text() != name:
                raise UserError(f"{probe} has other content than was written", "use another disk")
        finally:
            probe.unlink()
        return f"{location.parent} is written, read and emptied by the step"
    if location.scheme not in REMOTE_SCHEMES:
        raise NotTried(
            f"Kubeflow Pipelines copies {location}, so the step needs no credentials for it; but a training whose pod "
            "is lost starts again, and there is no workers=rayjob and no retraining",
            f"if you want these: {_ROOT_REMEDY}",
        )
    store, probe_uri = store_of(location), replace(location, path=f"{location.path}{name}")
    content = json.dumps({"probe": name}).encode()
    try:
        store.write(probe_uri, content, NO_VERSION)  # checks that the server honours the conditions of writes
        try:
            if store.read(probe_uri)[0] != content:
                raise UserError(f"{probe_uri} has other content than was written", "use another bucket or server")
        finally:
            store.delete(probe_uri)
        if store.read(probe_uri)[0] is not None:
            raise UserError(f"{probe_uri} exists after it was deleted", "let the step's account delete objects")
    except StorageError as error:
        raise UserError(error.problem, f"{error.remedy}; credentials of steps: docs/pipeline.md, --overrides") from None
    return f"{location.scheme}://{location.bucket} is written under a condition, read and emptied by the step"


def check_artifact(location: str) -> str:
    """Read and verify the artifact of an earlier step."""
    where = parse_location(location)
    directory = fetch(where) if isinstance(where, ObjectUri) else where
    manifest = require_artifact(directory, "artifact", verify_content=True)
    return f"{display_path(directory)}: {len(manifest.files)} file, as it was written"


def check_clang(program: str = _CLANG) -> str:
    """Compile a function."""
    path = shutil.which(program)
    if path is None:
        raise UserError(
            f"there is no {program}", "use the image mlgo-toolchain, or run mlgo setup debian on this machine"
        )
    with tempfile.TemporaryDirectory() as work:
        source = Path(work, "one.c")
        source.write_text("int twice(int x) { return 2 * x; }\n")
        _run([path, "-Oz", "-c", source.name, "-o", "one.o"], "compile", work)
        size = Path(work, "one.o").stat().st_size
    version = _run([path, "--version"], "tell its version").partition("\n")[0]
    return f"{version} has compiled a function to an object of {size} bytes"


def check_tensorflow() -> str:
    """Load TensorFlow, in a process of its own: on a processor that it was not built for it ends by a signal."""
    return f"TensorFlow {_run([sys.executable, '-c', _TENSORFLOW_PROGRAM], 'load TensorFlow').split()[0]}"


def _run(command: list[str], what: str, directory: str | None = None) -> str:
    done = capture(command, cwd=directory)
    if done.returncode == 0:
        return done.stdout
    how = f"exit status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
    last = (done.stderr.strip().splitlines() or [""])[-1]
    raise UserError(
        f"{Path(command[0]).name} cannot {what} ({how}){f': {last}' if last else ''}",
        "give the step more memory, use other nodes, or build and push the images again",
    )


class KfpApi:
    """KFP's API as a pod asks it.

    Attributes:
        version: of the server, after `check`; empty if it is unknown.
    """

    def __init__(self, server: KfpAddress) -> None:
        self._server = server
        self.version = ""

    def check(self) -> str:
        """Ask the server for its version."""
        try:
            self.version = KfpClient(self._server).health.version
        except NoAnswer as error:
            cause = error.problem.rpartition(": ")[2]
            raise NotTried(
                f"no KFP API answers at {self._server.host} ({cause}), as the last step would ask for a webhook",
                f"on KFP, for --notify-secret: set {HOST_VARIABLE} by env of --overrides",
            ) from None
        return f"Kubeflow Pipelines {self.version or 'of a version that it does not tell'} at {self._server.host}"


def check_retry(read: str, fail_once: str, version: str) -> str:
    """Let the first attempt of this step fail, if that does not end the run.

    Args:
        read: artifact of an earlier step, next to which the first attempt leaves its mark: a server may give the
            second attempt another place for its output.
        fail_once: one of FAIL_ONCE.
        version: of KFP; empty if it is unknown.

    Raises:
        FailedOnPurpose: this is the first attempt.
        NotTried: the step should not fail, or cannot leave a mark.
    """
    if fail_once == "no":
        raise NotTried("--param fail_once=no")
    location = parse_location(read)
    if not isinstance(location, ObjectUri) or location.scheme not in REMOTE_SCHEMES:
        raise NotTried("the first attempt leaves its mark in object storage that the step writes itself", _ROOT_REMEDY)
    numbers = version_numbers(version)
    if fail_once == "auto" and (numbers is None or numbers >= NO_REPETITION_SINCE):
        raise NotTried(
            f"KFP {version}, as its manifests install it, repeats a step whose pod is lost, but not one that fails"
            if numbers
            else "it is not known whether this server repeats a step that fails",
            "--param fail_once=yes tries it; where the server does not repeat the step, the run fails",
        )
    mark = replace(location, path=f"{location.path}.failed-once")
    store = store_of(mark)
    try:
        store.write(mark, json.dumps({"failed_s": time.time()}).encode(), NO_VERSION)
    except VersionConflict:
        content, _version = store.read(mark)
        store.delete(mark)
        pause_s = time.time() - json.loads(content or b"{}").get("failed_s", time.time())
        return f"the step failed on purpose, and was started again after {pause_s:.0f} s"
    raise FailedOnPurpose
