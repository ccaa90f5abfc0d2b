"""Checkpoints: everything that a training needs to resume, published atomically.

A checkpoint is a directory with

    variables.npz   policy weights, Adam's moments and counters (Learner.state)
    average/        moving average of the weights (weights.npz, see components/core/policy/dense.py)
    best/           the average that was best on the validation modules so far
    replay/         replay buffer of measured flips, a file for each segment (replay.py)
    state.json      fingerprint, iteration, seconds trained, sampler, random generators, quarantine, history of
                    validations, digest of the policy, lengths of TensorBoard's files, rows of training.csv
    manifest.json   written last: a directory without it does not exist

checkpoint_manager.py decides where checkpoints are and which of them is valid.

Segments of flips never change. One that the previous checkpoint contains is hard-linked, if the file system has links.
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

from components.core.policy.dense import NPZ_ERRORS, DensePolicy, read_dense, write_npz
from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.input_files import read_json
from components.platform.storage.manifest import verify
from components.platform.storage.uri import display_path
from components.ppo.checkpointing.fingerprint import EarlierCredit, require_known_credit
from components.ppo.learners.replay import Segment

VARIABLES = "variables.npz"
STATE = "state.json"
AVERAGE, BEST = "average", "best"
REPLAY = "replay"


@dataclass(frozen=True)
class Checkpoint:
    """State after an iteration; see the files of a checkpoint above. `state` is JSON."""

    iteration: int
    variables: dict[str, NDArray[Any]]
    average: DensePolicy
    best: DensePolicy
    state: dict[str, Any]
    replay: tuple[Segment, ...] = ()

    @property
    def policy_digest(self) -> str:
        """SHA-256 (hex) of the weights of the policy."""
        digest = hashlib.sha256()
        for name in sorted(name for name in self.variables if name.startswith("weights/")):
            digest.update(name.encode() + np.ascontiguousarray(self.variables[name]).tobytes())
        return digest.hexdigest()


def write(directory: Path, checkpoint: Checkpoint, before: Path | None = None) -> None:
    """Publish a checkpoint as `directory`.

    Args:
        before: the checkpoint that this training published last or resumed from.
    """
    with publish(directory, "checkpoint") as partial:
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
    """Link or copy `source` to `target`; return False if `source` does not exist."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        return False
    except OSError:  # no hard links
        shutil.copyfile(source, target)
    return True


def read(directory: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        EarlierCredit: an earlier version of this program wrote it.
        UserError: the directory is missing or damaged.
    """
    try:
        verify(directory)
        state = read_json(directory / STATE)
        # Before reading the policies, which earlier versions wrote in another form.
        require_known_credit(directory.parent.parent, state.get("inputs", {}))
        variables = _arrays(directory / VARIABLES)
        replay = tuple(Segment.of(int(path.stem), _arrays(path)) for path in sorted((directory / REPLAY).glob("*.npz")))
        average, best = (read_dense(directory / name) for name in (AVERAGE, BEST))
        checkpoint = Checkpoint(int(state["training"]["iteration"]), variables, average, best, state, replay)
        if state.get("policy", checkpoint.policy_digest) != checkpoint.policy_digest:
            raise ValueError("its weights do not match the digest of its policy")
        return checkpoint
    except EarlierCredit:
        raise
    except (UserError, *NPZ_ERRORS) as error:
        problem = error.problem if isinstance(error, UserError) else error
        raise UserError(f"the checkpoint {display_path(directory)} is damaged: {problem}") from None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
