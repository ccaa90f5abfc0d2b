"""Everything that training needs to go on, published as one.

A checkpoint is a directory with

    variables.npz   policy weights, Adam's moments and counters (Learner.state), what is learned from again
                    (ReplayBuffer.state)
    average/        the moving average of the weights (weights.npz, see components/policy/dense.py)
    best/           the average that was best on the validation modules so far
    state.json      what it was begun with, iteration, seconds trained, sampler, generators, quarantine, history of
                    validations, digest of the policy, TensorBoard's files as far as they belong to it
    manifest.json   last: a directory without it does not exist

`store.py` says where they are and which of them holds.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.console import UserError
from components.policy.dense import NPZ_ERRORS, DensePolicy, read_dense, write_npz
from components.ppo.begun import EarlierCredit, require_known_credit
from components.storage import publish
from components.storage.input_files import read_json
from components.storage.manifest import verify
from components.storage.uri import shown

VARIABLES = "variables.npz"
STATE = "state.json"
AVERAGE, BEST = "average", "best"


@dataclass(frozen=True)
class Checkpoint:
    """What one iteration left. variables: see the directory; average, best: see the directories; state: JSON."""

    iteration: int
    variables: dict[str, NDArray[Any]]
    average: DensePolicy
    best: DensePolicy
    state: dict[str, Any]

    @property
    def policy_digest(self) -> str:
        """sha256 (hex) over the weights of the policy."""
        found = hashlib.sha256()
        for name in sorted(name for name in self.variables if name.startswith("weights/")):
            found.update(name.encode() + np.ascontiguousarray(self.variables[name]).tobytes())
        return found.hexdigest()


def write(directory: Path, checkpoint: Checkpoint) -> None:
    """Publishes it as `directory`."""
    with publish(directory) as partial:
        write_npz(partial / VARIABLES, **checkpoint.variables)
        for name, policy in ((AVERAGE, checkpoint.average), (BEST, checkpoint.best)):
            (partial / name).mkdir()
            policy.save(partial / name)
        head = {"version": 1, "iteration": checkpoint.iteration, "policy": checkpoint.policy_digest}
        (partial / STATE).write_text(json.dumps(head | checkpoint.state))


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
        with np.load(directory / VARIABLES, allow_pickle=False) as arrays:
            variables = {name: arrays[name] for name in arrays.files}
        average, best = (read_dense(directory / name) for name in (AVERAGE, BEST))
        found = Checkpoint(int(state["training"]["iteration"]), variables, average, best, state)
        if state.get("policy", found.policy_digest) != found.policy_digest:
            raise ValueError("its weights are not those of the policy that it names")
        return found
    except EarlierCredit:
        raise
    except (UserError, *NPZ_ERRORS) as error:
        told = error.problem if isinstance(error, UserError) else error
        raise UserError(f"the checkpoint {shown(directory)} is damaged: {told}") from None
