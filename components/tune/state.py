"""State of a search by module, kept on disk: a killed search continues after its last round."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from components.core.compiler.forced_decisions import Key
from components.core.storage.digests import json_digest
from components.core.storage.directory import make_directory
from components.core.storage.input_files import read_json, typed
from components.core.storage.output_files import replace_text

_VERSION = 1
_SEARCH = "search.json"
_REMEDY = "remove it; the search of this module then starts again"


@dataclass
class ModuleState:
    """State of the search of a module.

    Attributes:
        source: name of its source file, "" before its first round.
        heuristic_bytes, policy_bytes, size_bytes: text under LLVM's heuristic, the policy, and the decisions found.
        found, tried: see ClimbRequest.
        rounds: number of finished rounds.
        gained_bytes: savings since `tried` was empty.
        finished: no further flip is expected to save anything.
    """

    heuristic_bytes: int
    source: str = ""
    policy_bytes: int = 0
    size_bytes: int = 0
    found: dict[Key, int] = field(default_factory=dict)
    tried: frozenset[Key] = frozenset()
    rounds: int = 0
    gained_bytes: float = 0.0
    finished: bool = False


@dataclass
class _Document(ModuleState):
    """The state in JSON, which has no pairs as keys."""

    found: tuple[tuple[str, str, int, int], ...] = ()  # type: ignore[assignment]


class SearchDirectory:
    """The state of one search, in a folder of a root directory that is named by a fingerprint of its inputs.

    Args:
        root: directory of the states of searches.
        inputs: name and value of everything that determines the result. A search with other inputs
            starts from the beginning.
    """

    def __init__(self, root: Path, inputs: Mapping[str, str]) -> None:
        name = json_digest(dict(inputs))[:16]
        self._modules = root / name / "modules"
        make_directory(self._modules)
        replace_text(root / name / _SEARCH, json.dumps({"version": _VERSION, "made_of": dict(inputs)}))

    def load(self, module: str) -> ModuleState | None:
        """Return the state of a module; None if there is none."""
        path = self._path(module)
        if not path.exists():
            return None
        read = typed(read_json(path, _REMEDY), _Document, path, "the state of a module in a search", _REMEDY)
        found = {(caller, callee, n): action for caller, callee, n, action in read.found}
        return ModuleState(**{**vars(read), "found": found})

    def save(self, module: str, state: ModuleState) -> None:
        """Write the state of a module."""
        document = vars(state) | {
            "module": module,
            "found": [[*key, action] for key, action in state.found.items()],
            "tried": sorted(state.tried),
        }
        replace_text(self._path(module), json.dumps(document))

    def _path(self, module: str) -> Path:
        return self._modules / f"{hashlib.sha256(module.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.json"
