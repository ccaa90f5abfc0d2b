"""Runs each step in its container image, through the docker SDK."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from components.console import UserError, say
from components.formats.policy import IMAGE_VARIABLE
from components.launcher.images import IMAGES, STEPS
from components.launcher.notify import NOTIFY_VARIABLE
from components.storage.cache import default_cache_dir
from pipelines.images import Image, docker_client
from pipelines.mounts import shown_paths
from pipelines.places import local_directory
from pipelines.runner import STOP_WAIT_S, Runner, Running
from pipelines.step import Step

LABEL = "mlgo.run"
_PASSED_ON = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT")
_USER = 1000
"""Who steps are in containers that root starts: root on this machine need not be root there."""


class DockerRunner(Runner):
    """A Runner whose steps are containers: not root, with a read-only root file system.

    The run's directory, that of its artifacts, the cache and, read-only, what a step's command names
    (pipelines.mounts) are mounted where they are on this machine, so that a path means the same on both sides.
    Containers of a run that was killed are removed when the same run begins again.

    Args:
        images: of pipelines.images.read_images.
    """

    def __init__(self, images: Mapping[str, Image]) -> None:
        super().__init__()
        missing = sorted(set(STEPS) - set(images))
        if missing:
            raise UserError(f"there is no image {missing[0]}", "make images, or mlgo images build")
        self._references = {IMAGES[key]: images[key].reference for key in STEPS}
        self._stack = ExitStack()
        self._client: Any = None
        self._user = (_USER, _USER) if os.getuid() == 0 else (os.getuid(), os.getgid())

    def identity(self, step: Step) -> str:
        return self._references.get(step.image, step.image)

    def _open(self, lock: int) -> None:
        self._client = self._stack.enter_context(docker_client())
        for container in self._containers():
            say(f"removing the container of a killed run: {container.name}")
            container.remove(force=True)
        for folder in (Path(self.places.files), *self._written()):
            folder.mkdir(parents=True, exist_ok=True)
            self._own(folder)

    def _close(self) -> None:
        # One that an interrupt came upon while it was started is none of those that run.
        with self._stack, contextlib.suppress(Exception):
            for container in self._containers():
                container.remove(force=True)

    def _containers(self) -> list[Any]:
        return list(self._client.containers.list(all=True, filters={"label": f"{LABEL}={self.run}"}))

    def _launch(self, step: Step, command: list[str]) -> tuple[Any, int]:
        from docker.errors import APIError, ImageNotFound

        reference = self._references.get(step.image, step.image)
        folders = [Path(self.places.files, step.name)]
        folders += [Path(self.places.artifact(step.work))] if step.work else []
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
                shm_size="2g",  # where compiles have their scratch files
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                network_mode="host",  # an emulator of object storage on this machine is reached by the same name
                environment={**here, "MLGO_CACHE_DIR": str(self._cache()), IMAGE_VARIABLE: reference},
                volumes=self._volumes(command, here.get("GOOGLE_APPLICATION_CREDENTIALS")),
                labels={LABEL: str(self.run), "mlgo.step": step.name},
            )
        except ImageNotFound:
            raise UserError(f"the image {reference} is not here", "make images, or docker pull it") from None
        except APIError as error:
            problem = f"docker cannot start the step {step.name}: {error.explanation}"
            raise UserError(problem, "see docker's log") from None
        reader, writer = os.pipe()
        threading.Thread(target=_copy_logs, args=(container, writer), daemon=True).start()
        return container, reader

    def _has_ended(self, running: Running) -> bool:
        return False  # the end of the output tells: the log ends with the container

    def _end_of(self, running: Running) -> int:
        status = int(running.handle.wait()["StatusCode"])
        running.handle.remove(force=True)
        return status

    def _ask(self, running: Running) -> None:
        with contextlib.suppress(Exception):  # ended by itself meanwhile
            running.handle.stop(timeout=int(STOP_WAIT_S))

    def _kill(self, running: Running) -> None:
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
        """Directories that steps write to."""
        artifacts = local_directory(self.places.artifacts)
        return (self.run, self._cache(), *((artifacts,) if artifacts else ()))

    def _volumes(self, command: Sequence[str], key_file: str | None) -> dict[str, dict[str, str]]:
        written = self._written()
        read = (*shown_paths(command), *((Path(key_file),) if key_file else ()))
        mounts = {path: "ro" for path in read if not any(path.is_relative_to(w) for w in written)}
        mounts |= dict.fromkeys(written, "rw")
        return {str(path): {"bind": str(path), "mode": mode} for path, mode in mounts.items()}

    def _cache(self) -> Path:
        """Of the containers only: what root downloaded here they could not write to."""
        return default_cache_dir() / "containers"

    def _own(self, folder: Path) -> None:
        if os.getuid() == 0:
            os.chown(folder, *self._user)


def _copy_logs(container: Any, writer: int) -> None:
    with open(writer, "wb", buffering=0) as stream, contextlib.suppress(Exception):
        for block in container.logs(stream=True, follow=True):
            stream.write(block)
