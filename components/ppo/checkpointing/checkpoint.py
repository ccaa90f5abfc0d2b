"""Everything that training needs to go on, published as one.

A checkpoint is a directory with

    variables.npz   policy weights, Adam's moments and counters (Learner.state)
    average/        the moving average of the weights (weights.npz, see components/core/policy/dense.py)
    best/           the average that was best on the validation modules so far
    replay/         measured flips that are learned from again, a file for each segment (replay.py)
    state.json      what it was begun with, iteration, seconds trained, sampler, generators, quarantine, history of
                    validations, digest of the policy, TensorBoard's files as far as they belong to it
    manifest.json   last: a directory without it does not exist

`store.py` says where they are and which of them holds.

A segment of flips never changes, so that one that the checkpoint before has is linked, where the file system has links.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core.console import UserError
from components.core.policy.dense import NPZ_ERRORS, DensePolicy, read_dense, write_npz
from components.core.storage import publish
from components.core.storage.input_files import read_json
from components.core.storage.manifest import verify
from components.core.storage.uri import display_path
from components.ppo.checkpointing.fingerprint import EarlierCredit, require_known_credit
from components.ppo.learners.replay import Segment

VARIABLES = "variables.npz"
STATE = "state.json"
AVERAGE, BEST = "average", "best"
REPLAY = "replay"


@dataclass(frozen=True)
class Checkpoint:
    """What one iteration left. variables, average, best, replay: see the directory; state: JSON."""

    iteration: int
    variables: dict[str, NDArray[Any]]
    average: DensePolicy
    best: DensePolicy
    state: dict[str, Any]
    replay: tuple[Segment, ...] = ()

    @property
    def policy_digest(self) -> str:
        """sha256 (hex) over the weights of the policy."""
        found = hashlib.sha256()
        for name in sorted(name for name in self.variables if name.startswith("weights/")):
            found.update(name.encode() + np.ascontiguousarray(self.variables[name]).tobytes())
        return found.hexdigest()


def write(directory: Path, checkpoint: Checkpoint, before: Path | None = None) -> None:
    """Publishes it as `directory`. before: the checkpoint that this training published last or went on from."""
    with publish(directory) as partial:
        write_npz(partial / VARIABLES, **checkpoint.variables)
        for name, policy in ((AVERAGE, checkpoint.average), (BEST, checkpoint.best)):
            (partial / name).mkdir()
            policy.save(partial / name)
        (partial / REPLAY).mkdir()
        for segment in checkpoint.replay:
            path = Path(REPLAY, f"{segment.number:06d}.npz")
            if before is None or not _link(before / path, partial / path):
                write_npz(partial / path, **segment.arrays())
        head = {"version": 1, "iteration": checkpoint.iteration, "policy": checkpoint.policy_digest}
        (partial / STATE).write_text(json.dumps(head | checkpoint.state))


def _link(source: Path, target: Path) -> bool:
    """Make `target` the same file as `source`, or a copy of it; False if that is not there."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        return False
    except OSError:  # no links here
        shutil.copyfile(source, target)
    return True


def read(directory: Path) -> Checkpoint:
    """The reverse of `write`.

    Raises:
        EarlierCredit: it is of an earlier version of this program.
        UserError: the directory is not there or damaged.
    """
    try:
        verify(directory)
        state = read_json(directory / STATE)
        # Before the policies, which an earlier version wrote in another form: that is not damage.
        require_known_credit(directory.parent.parent, state.get("inputs", {}))
        variables = _arrays(directory / VARIABLES)
        replay = tuple(Segment.of(int(path.stem), _arrays(path)) for path in sorted((directory / REPLAY).glob("*.npz")))
        average, best = (read_dense(directory / name) for name in (AVERAGE, BEST))
        found = Checkpoint(int(state["training"]["iteration"]), variables, average, best, state, replay)
        if state.get("policy", found.policy_digest) != found.policy_digest:
            raise ValueError("its weights are not those of the policy that it names")
        return found
    except EarlierCredit:
        raise
    except (UserError, *NPZ_ERRORS) as error:
        told = error.problem if isinstance(error, UserError) else error
        raise UserError(f"the checkpoint {display_path(directory)} is damaged: {told}") from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
