"""Run steps as local processes, in the environment of this process."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

from components.platform.console.progress import LOG_FORMAT_VARIABLE
from components.platform.errors import UserError
from components.platform.launcher.images import IMAGES
from components.platform.launcher.kfp_locations import DIRECT_VARIABLE
from components.platform.launcher.notify import NOTIFY_VARIABLE
from components.platform.storage.digests import json_digest
from pipelines.local.cache_inputs import identify_toolchain
from pipelines.local.runners.environment import identify_packages, identify_variables
from pipelines.local.runners.runner import Runner, RunningStep
from pipelines.local.source_digests import ROOT, SourceDigests
from pipelines.local.step import Step

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class ProcessRunner(Runner):
    """A Runner whose steps are processes; no step outlives it.

    Args:
        root: working directory of the steps, so that they import the same `components` as this process.
        llvm_major: major version of the installed LLVM that the steps use; its packaging revision is part of the
            steps' identity.

    Raises:
        UserError: TensorFlow is not installed.
    """

    def __init__(self, root: Path = ROOT, llvm_major: int = 19) -> None:
        super().__init__()
        if importlib.util.find_spec("tensorflow") is None:
            raise UserError(
                f"TensorFlow, which trains policies, is not installed in the environment of {sys.executable}",
                "mlgo setup training; or run the steps in containers: mlgo pipeline run --runner docker",
            )
        self.root = root
        self._sources = SourceDigests(root)
        self._installed = identify_toolchain(llvm_major)
        self._lock = -1

    def identity(self, step: Step) -> str:
        installed = self._installed if step.image in (IMAGES["toolchain"], IMAGES["sdk"]) else ()
        packages = identify_packages(self._sources.third_party_modules(step.module))
        decisive = json_digest([packages, identify_variables({**os.environ, **step.environment})])
        return " ".join((self._sources.of(step.module), decisive, *installed))

    def _open(self, lock: int) -> None:
        self._lock = lock

    def _close(self) -> None:
        self._lock = -1

    def _launch(self, step: Step, command: list[str]) -> tuple[subprocess.Popen[bytes], int]:
        # `python` in the image stands for this interpreter.
        program = sys.executable if command[0] == "python" else command[0]
        process = subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(step),
            cwd=self.root,
            start_new_session=True,  # Ctrl-C reaches only this process, which stops the steps in order
            # If the run is killed, its steps get SIGTERM and clean up.
            preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
            pass_fds=(self._lock,),
        )
        assert process.stdout is not None
        output = os.dup(process.stdout.fileno())
        process.stdout.close()
        return process, output

    def _has_ended(self, running: RunningStep) -> bool:
        return running.handle.poll() is not None

    def _end_of(self, running: RunningStep) -> int:
        return int(running.handle.wait())

    def _ask(self, running: RunningStep) -> None:
        _signal_group(running, signal.SIGTERM)

    def _kill(self, running: RunningStep) -> None:
        _signal_group(running, signal.SIGKILL)
        running.handle.wait()


def _environment(step: Step) -> dict[str, str]:
    """Return this process' environment; only the step that notifies gets the webhook's URL, which is a secret."""
    # With PYTHONSAFEPATH the interpreter would not look for the step's module in the working directory.
    left_out = {"PYTHONSAFEPATH"} | (set() if step.always else {NOTIFY_VARIABLE})
    here = {name: value for name, value in os.environ.items() if name not in left_out}
    defaults = {"TF_CPP_MIN_LOG_LEVEL": "1"}  # no messages about CPU features
    # This process stamps the lines that it passes on.
    fixed = {"PYTHONUNBUFFERED": "1", DIRECT_VARIABLE: "1", LOG_FORMAT_VARIABLE: "plain"}
    return defaults | here | fixed | dict(step.environment)


def _signal_group(running: RunningStep, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.handle.pid, number)
