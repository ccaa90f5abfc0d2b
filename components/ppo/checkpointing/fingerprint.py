"""Fingerprints of trainings: everything that determines what is learned. A training resumes only with the same one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import gin

from components.platform.errors import UserError
from components.platform.storage import digest
from components.platform.storage.digests import json_digest
from components.platform.storage.manifest import MANIFEST
from components.platform.storage.uri import display_path
from components.ppo.config import TrainingConfig
from components.ppo.module_sampler import read_oversampling

ARTIFACTS = ("corpus", "toolchain", "trace", "warmstart")
OPTIONS = tuple(
    """
    problem modules samples credit_assignment algorithm size_of module_weight validate_every ema_decay seed
    min_completed_fraction
    """.split()
)
GIN, OVERSAMPLED = "gin settings", "list of modules to oversample"


def training_fingerprint(config: TrainingConfig) -> dict[str, str]:
    """Return the fingerprint of a training, by name.

    It has digests of the artifacts ("" for artifacts without a manifest, such as another tool's corpus), of gin's
    present bindings and of the oversampled modules, and options as text. Options that say how long, where and with
    which timeouts to train are not part of it: they may change between runs.
    """
    names = sorted(read_oversampling(config.oversampling)) if config.oversampling else []
    artifacts = {name: getattr(config, name) for name in ARTIFACTS}
    return {
        **{name: digest(path) if (path / MANIFEST).exists() else "" for name, path in artifacts.items()},
        **{name: str(getattr(config, name)) for name in OPTIONS},
        GIN: hashlib.sha256(gin.config_str().encode()).hexdigest(),
        OVERSAMPLED: json_digest(names),
    }


def folder_of(fingerprint: Mapping[str, str]) -> str:
    """Return the folder name of a training with this fingerprint."""
    return json_digest(dict(fingerprint))[:16]


class EarlierCredit(UserError):
    """The training was started by an earlier version with another credit assignment and network."""


def require_known_credit(root: Path, fingerprint: Mapping[str, str]) -> None:
    """Refuse to resume a training of a version without counterfactual credit.

    Raises:
        EarlierCredit: it was started with the option --credit of earlier versions.
    """
    if "credit" in fingerprint and "credit_assignment" not in fingerprint:
        raise EarlierCredit(
            f"the training in {display_path(root)} was started by an earlier version of this program, with --credit "
            f"{fingerprint['credit']}, and cannot be resumed: credit assignment and network inputs have changed",
            "pass another --root-dir, or remove this one, to start again",
        )


def require_same(root: Path, started: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise UserError unless the training in `root`, started with fingerprint `started`, may resume with `now`."""
    require_known_credit(root, started)
    changed = [
        f"--{name.replace('_', '-')} {started[name]} (now {value})" if name in OPTIONS else f"another {name}"
        for name, value in now.items()
        if started.get(name, value) != value
    ]
    if changed:
        raise UserError(
            f"the training in {display_path(root)} was started with {' and '.join(changed)}",
            "pass the same values, or another --root-dir to start a new training",
        )
