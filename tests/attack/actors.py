"""Processes that write and read artifacts at once, and how each ended."""

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

from components.console import UserError
from components.storage import gcs, publish, verify
from components.storage.fetch import fetch
from components.storage.manifest import MANIFEST
from components.storage.uri import GsUri, mirror

FILES = 80
"""Of an artifact: enough for a pack."""
LARGE_BYTES = 3 << 20
"""Of one file, an object of its own."""
HANG_S = 600.0
"""After which a process counts as hanging: each of its requests gives up after 30 s."""

# One clean process imports what takes time; each actor is a fork of it.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.attack.actors", "google.cloud.storage"])


class WronglyAccepted(Exception):
    """An artifact was read that nobody published."""


@dataclass
class Counts:
    """What an attack came to.

    Attributes:
        tried: processes and inputs. clear: of them those that ended with one clear error. traceback, hang,
        wrongly_accepted: defects. kills: by SIGKILL. races: URIs that several wrote and read at once.
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
    """A process and the file that says how it ended."""

    process: Any
    result: Path

    def kill(self, counts: Counts, begun: Path, after_s: float) -> None:
        """Kill the process that long after the file `begun` is there."""
        until_s = time.monotonic() + HANG_S
        while not begun.exists() and self.process.is_alive() and time.monotonic() < until_s:
            time.sleep(0.01)
        time.sleep(after_s)
        self.process.kill()
        self.process.join()
        counts.tried += 1
        counts.kills += 1

    def count(self, counts: Counts) -> str:
        """Wait for the end and count it; return the traceback of a defect, "" if there is none."""
        counts.tried += 1
        self.process.join(HANG_S)
        if self.process.is_alive():
            counts.hang += 1
            self.process.kill()
            self.process.join()
            return f"{self.result.stem} hangs"
        how, told = json.loads(self.result.read_text()) if self.result.exists() else ("traceback", "no word of its end")
        if how != "done":
            setattr(counts, how, getattr(counts, how) + 1)
        return "" if how in ("done", "clear") else f"{self.result.stem}: {told}"


def start(act: Callable[..., None], host: str, cache: Path, result: Path, *arguments: object) -> Actor:
    """Run `act(*arguments)` in a process with this cache and storage server."""
    process = PROCESSES.Process(target=_run, args=(act, host, str(cache), str(result), arguments))
    process.start()
    return Actor(process, result)


def _run(act: Callable[..., None], host: str, cache: str, result: str, arguments: tuple[object, ...]) -> None:
    os.environ |= {gcs.EMULATOR: host, "MLGO_CACHE_DIR": cache}
    try:
        act(*arguments)
        ended = ("done", "")
    except UserError as error:
        # One message that names what it is about, without the server's own words.
        clear = "gs://" in error.problem and error.remedy and not any(noise in str(error) for noise in "{<")
        ended = ("clear", str(error)) if clear else ("traceback", f"not clear: {error}")
    except WronglyAccepted as error:
        ended = ("wrongly_accepted", str(error))
    except BaseException:
        ended = ("traceback", traceback.format_exc())
    Path(result).write_text(json.dumps(ended))


def write(uri: GsUri, text: str, begun: Path) -> None:
    """Publish an artifact whose files all hold `text`, then read what won; `begun` is made before the upload."""
    with publish(mirror(uri)) as directory:
        for number in range(FILES):
            (directory / f"{number:03}").write_text(text)
        (directory / "large").write_text(text * (LARGE_BYTES // len(text)))
        begun.touch()
    check(fetch(uri))


def read(uri: GsUri, times: int) -> None:
    """Fetch the artifact again and again, and take time over reading it."""
    for _time in range(times):
        check(fetch(uri))


def check(directory: Path) -> None:
    """WronglyAccepted unless all files are of one writer, from the first that is read to the last."""
    texts = set()
    for number, path in enumerate(sorted(path for path in directory.iterdir() if path.name != MANIFEST)):
        texts.add(path.read_text()[:8])
        if number % 20 == 0:
            time.sleep(random.uniform(0, 0.2))
    if len(texts) != 1:
        raise WronglyAccepted(f"{directory} has files of {sorted(texts)}")
    verify(directory)
