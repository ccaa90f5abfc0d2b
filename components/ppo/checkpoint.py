"""Everything that training needs to go on, published as one.

ROOT/checkpoints/<iteration>/ holds

    variables.npz   policy weights, Adam's moments and counters (learner.state())
    average/        the moving average of the weights (weights.npz, see components/policy/dense.py)
    best/           the average that was best on the validation modules so far
    state.json      digests of the inputs, iteration, seconds trained, sampler, generators, quarantine, history of
                    validations
    manifest.json   last: a directory without it does not exist

so a kill leaves the one before, and a run loses at most the iteration it was in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.console import UserError
from components.policy.dense import DensePolicy, read_dense
from components.storage import digest, discard, publish
from components.storage.manifest import MANIFEST, verify

VARIABLES = "variables.npz"
STATE = "state.json"
AVERAGE, BEST = "average", "best"


@dataclass(frozen=True)
class Checkpoint:
    """What one iteration left. variables: see Learner.state; average, best: see the directories; state: JSON."""

    iteration: int
    variables: dict[str, NDArray[Any]]
    average: DensePolicy
    best: DensePolicy
    state: dict[str, Any]


def digest_of(directory: Path) -> str:
    """The digest of an input artifact; "" for one without a manifest, such as a corpus that another tool made."""
    return digest(directory) if (directory / MANIFEST).exists() else ""


def require_same_inputs(root: Path, begun: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises UserError unless a training that was begun with inputs of these digests may go on with those."""
    changed = [name for name, value in now.items() if begun.get(name, value) != value]
    if changed:
        raise UserError(
            f"the training in {root} was begun with another {' and another '.join(changed)}",
            "pass what it was begun with, or another --root-dir to begin anew",
        )


def save(root: Path, checkpoint: Checkpoint, keep: int) -> None:
    """Publishes a checkpoint and removes all but the newest `keep`."""
    directory = root / "checkpoints"
    directory.mkdir(parents=True, exist_ok=True)
    with publish(directory / f"{checkpoint.iteration:06d}") as partial:
        np.savez(partial / VARIABLES, **checkpoint.variables)  # type: ignore[arg-type]
        for name, policy in ((AVERAGE, checkpoint.average), (BEST, checkpoint.best)):
            (partial / name).mkdir()
            policy.save(partial / name)
        (partial / STATE).write_text(json.dumps({"version": 1, **checkpoint.state}))
    for old in _complete(root)[:-keep]:
        discard(old)


def latest(root: Path) -> Checkpoint | None:
    """The newest checkpoint, None if there is none.

    Raises:
        UserError: it is damaged.
    """
    complete = _complete(root)
    if not complete:
        return None
    directory = complete[-1]
    remedy = f"remove {directory}: training then goes on from the checkpoint before it"
    try:
        verify(directory)
        with np.load(directory / VARIABLES, allow_pickle=False) as arrays:
            variables = {name: arrays[name] for name in arrays.files}
        state = json.loads((directory / STATE).read_text())
        average, best = (read_dense(directory / name) for name in (AVERAGE, BEST))
        return Checkpoint(int(directory.name), variables, average, best, state)
    except UserError as error:
        raise UserError(f"the checkpoint {directory} is damaged: {error.problem}", remedy) from None
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"the checkpoint {directory} is damaged: {error}", remedy) from None


def _complete(root: Path) -> list[Path]:
    found = (path.parent for path in root.glob(f"checkpoints/[0-9]*/{MANIFEST}"))
    found = (directory for directory in found if directory.name.isdecimal())  # not one that was moved aside
    return sorted(found, key=lambda directory: int(directory.name))
