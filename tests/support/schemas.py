"""Compares requests with those of the clients that servers publish (tests/support/published_clients.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

ROOT = Path(__file__).parents[2]
PIPELINES_PYTHON = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines") / "bin" / "python"
"""Python of the environment that has kfp and the published clients."""


class PublishedClients:
    """The published clients, in a process of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._requests, self._responses = process.stdin, process.stdout

    def check(self, api: str, method: str, path: str, body: Any = None) -> None:
        """Raise ValueError unless the published client sends the same request for this call.

        Args:
            api: a key of published_clients.BY_API.
            path: of the URL, with its query.
        """
        self._requests.write(json.dumps([api, method, path, body]) + "\n")
        self._requests.flush()
        theirs = json.loads(self._responses.readline())
        if "error" in theirs:
            raise ValueError(theirs["error"])
        parts = urlsplit(path)
        query = sorted(list(pair) for pair in parse_qsl(parts.query))
        theirs["query"].sort()
        ours = {"method": method, "path": parts.path, "query": query, "body": body}
        for name in ours:
            if ours[name] != theirs[name]:
                raise ValueError(f"the published client sends another {name}: {str(theirs[name])[:500]}")


@contextmanager
def published_clients() -> Iterator[PublishedClients]:
    """Start the process, and end it after the block."""
    command = [str(PIPELINES_PYTHON), "-m", "tests.support.published_clients"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield PublishedClients(process)
        assert process.stdin is not None
        process.stdin.close()
