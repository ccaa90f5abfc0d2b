"""Processes that write and read artifacts concurrently, and their outcomes."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from components.platform.errors import UserError
from components.platform.storage import publish, verify
from components.platform.storage.manifest import MANIFEST
from components.platform.storage.object_storage import gcs
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.uri import ObjectUri, mirror

FILES = 80
"""Files of an artifact: enough for a pack."""
LARGE_BYTES = 3 << 20
"""Size of one file, stored as a separate object."""
HANG_S = 600.0
"""Time after which a process counts as hanging; each of its requests gives up after 30 s."""

# One clean process does the slow imports; each actor is forked from it.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.attack.actors", "google.cloud.storage"])


class WronglyAccepted(Exception):
    """A reader got content that no writer published."""


@dataclass
class Counts:
    """Results of an attack.

    Attributes:
        tried: processes and inputs.
        clear: those that ended with one clear error.
        traceback, hang, wrongly_accepted: defects.
        kills: processes killed by SIGKILL.
        races: URIs that several processes wrote and read concurrently.
    """

    tried: int = 0
    clear: int = 0
    traceback: int = 0
    hang: int = 0
    wrongly_accepted: int = 0
    kills: int = 0
    races: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{getattr(self, part.name)} {part.name.replace('_', ' ')}" for part in fields(self))


@dataclass
class Actor:
    """A process and the file that holds its outcome."""

    process: Any
    result: Path

    def kill(self, counts: Counts, begun: Path, after_s: float) -> None:
        """Kill the process `after_s` after the file `begun` appears."""
        until_s = time.monotonic() + HANG_S
        while not begun.exists() and self.process.is_alive() and time.monotonic() < until_s:
            time.sleep(0.01)
        time.sleep(after_s)
        self.process.kill()
        self.process.join()
        counts.tried += 1
        counts.kills += 1

    def count(self, counts: Counts) -> str:
        """Wait for the process to end and count its outcome; return the traceback of a defect, "" for none."""
        counts.tried += 1
        self.process.join(HANG_S)
        if self.process.is_alive():
            counts.hang += 1
            self.process.kill()
            self.process.join()
            return f"{self.result.stem} hangs"
        outcome, details = (
            json.loads(self.result.read_text()) if self.result.exists() else ("traceback", "left no outcome")
        )
        if outcome != "done":
            setattr(counts, outcome, getattr(counts, outcome) + 1)
        return "" if outcome in ("done", "clear") else f"{self.result.stem}: {details}"


def start(act: Callable[..., None], host: str, cache: Path, result: Path, *arguments: object) -> Actor:
    """Run `act(*arguments)` in a process with this cache and storage server."""
    process = PROCESSES.Process(target=_run, args=(act, host, str(cache), str(result), arguments))
    process.start()
    return Actor(process, result)


def _run(act: Callable[..., None], host: str, cache: str, result: str, arguments: tuple[object, ...]) -> None:
    os.environ |= {gcs.EMULATOR_VARIABLE: host, "MLGO_CACHE_DIR": cache}
    try:
        act(*arguments)
        ended = ("done", "")
    except UserError as error:
        # Clear: one message that names the URI and a remedy, without raw server output.
        clear = "gs://" in error.problem and error.remedy and not any(noise in str(error) for noise in "{<")
        ended = ("clear", str(error)) if clear else ("traceback", f"not clear: {error}")
    except WronglyAccepted as error:
        ended = ("wrongly_accepted", str(error))
    except BaseException:
        ended = ("traceback", traceback.format_exc())
    Path(result).write_text(json.dumps(ended))


def write(uri: ObjectUri, text: str, begun: Path) -> None:
    """Publish an artifact whose files all hold `text`, then read the winner; `begun` is created before the upload."""
    with publish(mirror(uri), "trace") as directory:
        for number in range(FILES):
            (directory / f"{number:03}").write_text(text)
        (directory / "large").write_text(text * (LARGE_BYTES // len(text)))
        begun.touch()
    check(fetch(uri))


def read(uri: ObjectUri, times: int) -> None:
    """Fetch the artifact repeatedly and read it slowly."""
    for _time in range(times):
        check(fetch(uri))


def check(directory: Path) -> None:
    """Raise WronglyAccepted unless all files are of one writer, from the first read to the last."""
    texts = set()
    for number, path in enumerate(sorted(path for path in directory.iterdir() if path.name != MANIFEST)):
        texts.add(path.read_text()[:8])
        if number % 20 == 0:
            time.sleep(random.uniform(0, 0.2))
    if len(texts) != 1:
        raise WronglyAccepted(f"{directory} has files of {sorted(texts)}")
    verify(directory)
