"""Run each step in its container image, with the docker SDK."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from components.core.formats.policy import IMAGE_VARIABLE
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.launcher.images import IMAGES
from components.platform.launcher.kfp_locations import DIRECT_VARIABLE
from components.platform.launcher.mlflow import VARIABLES as MLFLOW_VARIABLES
from components.platform.launcher.notify import NOTIFY_VARIABLE
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.object_storage.s3 import ENDPOINT_VARIABLES, REGION_VARIABLES
from pipelines.images import Image, docker_client
from pipelines.local.locations import local_directory
from pipelines.local.runners.mounts import mounted_paths
from pipelines.local.runners.runner import STOP_WAIT_S, Runner, RunningStep
from pipelines.local.step import Step

LABEL = "mlgo.run"
_PASSED_ON = (
    "STORAGE_EMULATOR_HOST",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    *ENDPOINT_VARIABLES,
    *REGION_VARIABLES,
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    *MLFLOW_VARIABLES,
)
_USER = 1000
"""User ID of the steps in containers that root starts: steps do not need root."""


class DockerRunner(Runner):
    """A Runner whose steps are containers, not root, with a read-only root file system.

    The directories of the run, its artifacts and the cache, and, read-only, what a step's command names
    (mounts.py) are mounted at the same paths as on this machine. Containers of a killed run are removed when
    the same run starts again.

    Args:
        used: the images that steps of the pipeline run in, from pipelines.spec.used_images.
    """

    def __init__(self, images: Mapping[str, Image], used: Sequence[str]) -> None:
        super().__init__()
        missing = sorted(set(used) - set(images))
        if missing:
            raise UserError(
                f"the image {missing[0]} is not built", "run mlgo images build in a clone, or pass it by --images"
            )
        self._references = {IMAGES[key]: images[key].reference for key in used}
        self._stack = ExitStack()
        self._client: Any = None
        self._user = (_USER, _USER) if os.getuid() == 0 else (os.getuid(), os.getgid())

    def identity(self, step: Step) -> str:
        return self._references.get(step.image, step.image)

    def _open(self, lock: int) -> None:
        self._client = self._stack.enter_context(docker_client())
        for container in self._containers():
            say(f"removing the container {container.name} of a killed run")
            container.remove(force=True)
        for folder in (Path(self.locations.files), *self._written()):
            folder.mkdir(parents=True, exist_ok=True)
            self._own(folder)

    def _close(self) -> None:
        # By label: a container whose start was interrupted is not among the running steps.
        with self._stack, contextlib.suppress(Exception):
            for container in self._containers():
                container.remove(force=True)

    def _containers(self) -> list[Any]:
        return list(self._client.containers.list(all=True, filters={"label": f"{LABEL}={self.run}"}))

    def _launch(self, step: Step, command: list[str]) -> tuple[Any, int]:
        from docker.errors import APIError, ImageNotFound

        reference = self._references.get(step.image, step.image)
        folders = [Path(self.locations.files, step.name)]
        folders += [Path(self.locations.artifact(step.work))] if step.work else []
        for folder in filter(Path.is_dir, folders):
            self._own(folder)
        passed_on = (*_PASSED_ON, NOTIFY_VARIABLE) if step.always else _PASSED_ON
        here = {name: os.environ[name] for name in passed_on if name in os.environ}
        try:
            container = self._client.containers.run(
                reference,
                command[1:],
                entrypoint=command[0],
                detach=True,
                user=f"{self._user[0]}:{self._user[1]}",
                read_only=True,
                tmpfs={"/tmp": "rw,exec,mode=1777"},
                shm_size="2g",  # for the scratch files of compiles
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                network_mode="host",  # an object storage emulator on this machine has the same address
                environment={
                    **here,
                    "MLGO_CACHE_DIR": str(self._cache()),
                    IMAGE_VARIABLE: reference,
                    DIRECT_VARIABLE: "1",
                    **step.environment,
                },
                volumes=self._volumes(command, here.get("GOOGLE_APPLICATION_CREDENTIALS")),
                labels={LABEL: str(self.run), "mlgo.step": step.name},
            )
        except ImageNotFound:
            raise UserError(
                f"the image {reference} is not on this machine", "run mlgo images build in a clone, or docker pull it"
            ) from None
        except APIError as error:
            problem = f"docker cannot start the step {step.name}: {error.explanation}"
            raise UserError(problem, "see the docker daemon's log") from None
        reader, writer = os.pipe()

        def copy_logs() -> None:
            with open(writer, "wb", buffering=0) as stream, contextlib.suppress(Exception):
                for block in container.logs(stream=True, follow=True):
                    stream.write(block)

        threading.Thread(target=copy_logs, daemon=True).start()
        return container, reader

    def _has_ended(self, running: RunningStep) -> bool:
        return False  # the end of the output decides: the log ends with the container

    def _end_of(self, running: RunningStep) -> int:
        status = int(running.handle.wait()["StatusCode"])
        running.handle.remove(force=True)
        return status

    def _ask(self, running: RunningStep) -> None:
        with contextlib.suppress(Exception):  # it may have ended by itself
            running.handle.stop(timeout=int(STOP_WAIT_S))

    def _kill(self, running: RunningStep) -> None:
        with contextlib.suppress(Exception):
            running.handle.remove(force=True)

    def stop(self) -> None:
        stopped = list(self.running)
        for running in stopped:
            running.shown = False
            try:
                self._ask(running)
            finally:
                self._kill(running)
                self._forget(running)
        for running in stopped:
            say(f"[{running.step.name}] stopped")

    def _written(self) -> tuple[Path, ...]:
        """Return the directories that steps write to."""
        artifacts = local_directory(self.locations.artifacts)
        return (self.run, self._cache(), *((artifacts,) if artifacts else ()))

    def _volumes(self, command: Sequence[str], key_file: str | None) -> dict[str, dict[str, str]]:
        written = self._written()
        read = (*mounted_paths(command), *((Path(key_file),) if key_file else ()))
        mounts = {path: "ro" for path in read if not any(path.is_relative_to(w) for w in written)}
        mounts |= dict.fromkeys(written, "rw")
        return {str(path): {"bind": str(path), "mode": mode} for path, mode in mounts.items()}

    def _cache(self) -> Path:
        """Return a cache only for containers: they could not write to files that root downloaded here."""
        return default_cache_dir() / "containers"

    def _own(self, folder: Path) -> None:
        if os.getuid() == 0:
            os.chown(folder, *self._user)
