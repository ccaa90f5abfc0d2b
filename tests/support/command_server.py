"""Runs commands in processes that are forked from this one, which has imported what they import.

The client is tests/support/commands.py. A message on the socket whose descriptor is the argument is a command with the
descriptors of its standard streams and of a socket for the answers: the process ID, then the status of os.waitpid.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import sys
import threading
from typing import Any

LARGEST_MESSAGE = 1 << 20
PRELOADED = (
    "components.corpus.__main__",
    "components.corpus.sources.bitcode_files",
    "components.corpus.sources.import_corpus",
    "components.corpus.sources.recipe_projects",
    "components.evaluation.__main__",
    "components.evaluation.benchmarks.benchmark_comparison",
    "components.evaluation.inputs",
    "components.evaluation.projects.build_trees",
    "components.toolchain.__main__",
    "components.trace.__main__",
    "components.trace.collect",
    "components.tune.__main__",
    "components.tune.step",
    "components.vocab.__main__",
    "components.vocab.build",
    "docker",
    "google.auth.transport.requests",
    "pipelines.cli.main",
    "pipelines.cluster.rayjobs",
    "pipelines.cluster.storage_and_images",
    "pipelines.local.run_locally",
    "pipelines.local.runners.docker",
    "pipelines.local.runners.process",
    "pipelines.parameters.policy_checks",
    "pipelines.retrain.evaluate_deployed",
    "pipelines.retrain.retraining",
    "pipelines.retrain.server_run",
    "rich.table",
)
"""None imports TensorFlow."""


def _preload() -> list[str]:
    """Import PRELOADED; return the names of the environment variables that this reads."""
    read = {"LD_LIBRARY_PATH", "LD_PRELOAD", "TZ"}
    environ = type(os.environ)
    original = environ.__getitem__

    def record(self: Any, name: Any) -> Any:
        read.add(os.fsdecode(name))
        return original(self, name)

    environ.__getitem__ = record  # type: ignore[method-assign]
    try:
        for name in PRELOADED:
            importlib.import_module(name)
    finally:
        environ.__getitem__ = original  # type: ignore[method-assign]
    for name in [name for name in sys.modules if name.endswith(".__main__")]:
        del sys.modules[name]  # it is the program, which is executed in each process
    assert "tensorflow" not in sys.modules and threading.active_count() == 1, "a fork copies one thread"
    gc.collect()
    gc.freeze()
    return sorted(read)


def _serve(control: socket.socket) -> list[str]:
    """Fork a process for each command until the client closes the socket; return the command in each of them."""
    control.send(json.dumps(_preload()).encode())
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not control:
                    process_id, answers = key.data
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    _send(answers, os.waitpid(process_id, 0)[1])
                    answers.close()
                    continue
                message, descriptors, _flags, _address = socket.recv_fds(control, LARGEST_MESSAGE, 4)
                if not message:
                    sys.exit()
                *streams, answers_descriptor = descriptors
                answers = socket.socket(fileno=answers_descriptor)
                if process_id := os.fork():
                    _send(answers, process_id)
                    for descriptor in streams:
                        os.close(descriptor)
                    process = os.pidfd_open(process_id)
                    selector.register(process, selectors.EVENT_READ, (process_id, answers))
                    continue
                for other in selector.get_map().values():
                    if other.fileobj is not control:
                        os.close(other.fd)
                        other.data[1].close()
                control.close()
                answers.close()
                return _become(json.loads(message), streams)


def _send(answers: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the client was interrupted
        answers.send(str(number).encode())


def _become(request: dict[str, Any], streams: list[int]) -> list[str]:
    """Give this process the streams, environment and directory of a command; return the command."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.path[0] = request["directory"]  # as `python -m` does
    return list(request["command"])


def _run(module: str) -> None:
    """Run a module as the program, and end this process as the interpreter does.

    Only the modules are not torn down: that writes to the memory of each object, so that the kernel copies all of it,
    which takes 40 ms.
    """
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if error.code is not None:
            if not isinstance(error.code, int):
                raise
            status = error.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    sys.argv = _serve(socket.socket(fileno=int(sys.argv[1])))
    _run(sys.argv[0])
