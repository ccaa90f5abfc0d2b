"""What a search knows of each module, kept on disk: a search that was killed goes on with its last round."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.core.compiler.forced_decisions import Key
from components.core.storage.directory import make_directory
from components.core.storage.input_files import expect_shape, read_json
from components.core.storage.output_files import replace_text

_VERSION = 1
_SEARCH = "search.json"
_REMEDY = "remove it: the search of this module then begins from nothing"


@dataclass
class ModuleState:
    """A module in the search.

    Attributes:
        source: name of its source file, "" before its first round.
        heuristic_bytes, policy_bytes, size_bytes: its text under LLVM's heuristic, the policy, and what was found.
        found, tried: see ClimbRequest.
        rounds: that were done.
        gained_bytes: how much was saved since `tried` was empty.
        finished: nothing that is left to be tried would save anything.
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


class SearchDirectory:
    """What is kept of one search, in a folder of a root directory that is named by what decides its outcome.

    Args:
        root: where searches are kept.
        made_of: name -> what it is, of all that decides the outcome. A search that differs in any begins from nothing.
    """

    def __init__(self, root: Path, made_of: Mapping[str, str]) -> None:
        name = hashlib.sha256(json.dumps(dict(made_of), sort_keys=True).encode()).hexdigest()[:16]
        self._modules = root / name / "modules"
        make_directory(self._modules)
        replace_text(root / name / _SEARCH, json.dumps({"version": _VERSION, "made_of": dict(made_of)}))

    def load(self, module: str) -> ModuleState | None:
        """Return what is known of a module; None if nothing is."""
        path = self._path(module)
        if not path.exists():
            return None
        document: dict[str, Any] = read_json(path, _REMEDY)
        with expect_shape(path, "what is known of a module", _REMEDY):
            document.pop("module")
            found = {(caller, callee, n): action for caller, callee, n, action in document.pop("found")}
            tried = frozenset((caller, callee, n) for caller, callee, n in document.pop("tried"))
            return ModuleState(**document, found=found, tried=tried)

    def save(self, module: str, state: ModuleState) -> None:
        """Keep what is known of a module."""
        document = vars(state) | {
            "module": module,
            "found": [[*key, action] for key, action in state.found.items()],
            "tried": sorted(state.tried),
        }
        replace_text(self._path(module), json.dumps(document))

    def _path(self, module: str) -> Path:
        return self._modules / f"{hashlib.sha256(module.encode('utf-8', 'surrogateescape')).hexdigest()[:24]}.json"
