"""State of a search by module: a killed search continues after its last round, or on another machine.

    ROOT/<fingerprint>/search.json         version and inputs
    ROOT/<fingerprint>/modules/<id>.json   the state of a module, written after each of its rounds
    ROOT/<fingerprint>/latest.json         lease of the search (components/platform/storage/shared_state/root_lease.py)
    ROOT/<fingerprint>/state/              in object storage: search.json and modules/, published as one artifact

The artifact is replaced as a whole, at most every PUBLISH_EVERY_S and at the end, also after an interrupt. So a machine
that is lost without a signal loses at most the rounds since then.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from components.core.compiler.forced_decisions import Key
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.digests import json_digest
from components.platform.storage.directory import make_directory
from components.platform.storage.input_files import read_json, typed
from components.platform.storage.inputs import require_unchanged_inputs
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.object_store import StorageError
from components.platform.storage.object_storage.remote import read_remote_manifest
from components.platform.storage.output_files import replace_text
from components.platform.storage.shared_state.root_lease import RootLease
from components.platform.storage.uri import ObjectUri, display_path, uri_of

PUBLISH_EVERY_S = 60.0
"""Least time between two publications; longer if publishing would take more than _MAX_PUBLISHING_SHARE of the time."""
_MAX_PUBLISHING_SHARE = 0.05
_SEARCH, _MODULES, _STATE = "search.json", "modules", "state"
_VERSION = 2
_REMEDY = "remove it; the search of this module then starts again"


@dataclass
class ModuleState:
    """State of the search of a module.

    Attributes:
        source: name of its source file, "" before its first round.
        heuristic_bytes, policy_bytes, size_bytes: text under LLVM's heuristic, the policy, and the decisions found.
        heuristic_linked_bytes, policy_linked_bytes, linked_bytes: the objective of each, see `linked_bytes`.
        changed, tried: see ClimbRequest.
        rounds: number of finished rounds.
        gained_bytes: savings since `tried` was empty.
        finished: no further flip is expected to save anything.
        is_program: see `Module.is_program`; the search starts from LLVM's heuristic then, else from the policy.
    """

    heuristic_bytes: int
    source: str = ""
    policy_bytes: int = 0
    size_bytes: int = 0
    changed: dict[Key, int] = field(default_factory=dict)
    tried: frozenset[Key] = frozenset()
    rounds: int = 0
    gained_bytes: float = 0.0
    finished: bool = False
    heuristic_linked_bytes: float = 0.0
    policy_linked_bytes: float = 0.0
    linked_bytes: float = 0.0
    is_program: bool = False

    @property
    def start_bytes(self) -> int:
        """Text under the decisions that the search starts from."""
        return self.heuristic_bytes if self.is_program else self.policy_bytes

    @property
    def start_linked_bytes(self) -> float:
        """The objective under these decisions."""
        return self.heuristic_linked_bytes if self.is_program else self.policy_linked_bytes


@dataclass
class _Document(ModuleState):
    """The state in JSON, which has no pairs as keys; `found` is what has changed."""

    found: tuple[tuple[str, str, int, int], ...] = ()


def search_folder(root: Path, inputs: Mapping[str, str]) -> Path:
    """Return the folder of the search with these inputs (name and value of everything that determines the result).

    A search with other inputs has another folder, and starts from the beginning.
    """
    return root / json_digest(dict(inputs))[:16]


class SearchDirectory:
    """Reads, writes and publishes the state of one search.

    Args:
        lease: the lease of the folder, which is held.
        inputs: see `search_folder`.

    Raises:
        UserError: the present state is damaged or that of other inputs; object storage refuses or does not answer.
    """

    def __init__(self, lease: RootLease, inputs: Mapping[str, str]) -> None:
        self._lease, self._folder = lease, lease.root
        self._modules = self._folder / _MODULES
        self._uri = uri_of(self._folder)
        self._unpublished = False
        self._publish_at_s = time.monotonic() + PUBLISH_EVERY_S
        if self._uri is not None:
            self._download(self._uri / _STATE)
        make_directory(self._modules)
        head = {"version": _VERSION, "made_of": dict(inputs)}
        if (path := self._folder / _SEARCH).exists() and read_json(path, "remove the directory") != head:
            raise UserError(
                f"{display_path(self._folder)} has the state of a search of other inputs, or of another version",
                "use another --root-dir, or remove this one, to start again",
            )
        replace_text(path, json.dumps(head))
        if count := sum(1 for _ in self._modules.glob("*.json")):
            say(f"continuing the search in {display_path(self._folder)}: {count} modules have results")

    def load(self, module: str) -> ModuleState | None:
        path = self._path(module)
        if not path.exists():
            return None
        read = typed(read_json(path, _REMEDY), _Document, path, "the state of a module in a search", _REMEDY)
        values = dict(vars(read))
        changed = {(caller, callee, n): action for caller, callee, n, action in values.pop("found")}
        return ModuleState(**{**values, "changed": changed})

    def save(self, module: str, state: ModuleState) -> None:
        """Write the state of a module, and publish all of them if it is time to.

        Object storage that does not answer is only a warning: the next publication may succeed.

        Raises:
            LeaseLost: another search has taken over; none of its files was changed.
        """
        document = vars(state) | {"module": module, "tried": sorted(state.tried)}
        document["found"] = [[*key, action] for key, action in document.pop("changed").items()]
        self._unpublished = True  # first: an interrupt after the next line must publish the file
        replace_text(self._path(module), json.dumps(document))
        began_s = time.monotonic()
        if began_s < self._publish_at_s:
            return
        try:
            self.publish()
        except StorageError as error:
            say(f"warning: the state of the search is not published: {error.problem}")
        ended_s = time.monotonic()
        self._publish_at_s = ended_s + max(PUBLISH_EVERY_S, (ended_s - began_s) / _MAX_PUBLISHING_SHARE)

    def publish(self) -> None:
        """Publish the state unless it is published already; of a local directory, only verify the lease.

        Raises:
            LeaseLost: see `save`.
            UserError: object storage refuses or does not answer.
        """
        if self._uri is None or not self._unpublished:
            require_unchanged_inputs()
            self._lease.update()
        else:
            with publish(self._folder / _STATE, "state of a search") as partial:
                shutil.copyfile(self._folder / _SEARCH, partial / _SEARCH)
                shutil.copytree(self._modules, partial / _MODULES)
                # After `publish` has read the manifest that it will replace. Whoever has taken over by then is noticed
                # here, and whoever publishes later changes the manifest.
                self._lease.update()
        self._unpublished = False

    def _download(self, state: ObjectUri) -> None:
        """Replace the files in the mirror, which may be those of an earlier run, by the published ones."""
        published = self._folder / _STATE
        for path in (self._modules, published):
            shutil.rmtree(path, ignore_errors=True)
        (self._folder / _SEARCH).unlink(missing_ok=True)
        try:
            if not read_remote_manifest(state).version:
                return
            fetch(state, published)
        except StorageError:
            raise
        except UserError as error:
            raise UserError(
                f"the state of the search in {display_path(self._folder)} cannot be read: {error.problem}",
                "use another --root-dir, or remove this one, to start again",
            ) from None
        shutil.copyfile(published / _SEARCH, self._folder / _SEARCH)
        shutil.copytree(published / _MODULES, self._modules)

    def _path(self, module: str) -> Path:
        return self._modules / f"{hashlib.sha256(module.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.json"
