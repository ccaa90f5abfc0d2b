"""What a training is made of: all that decides what it learns, so that it goes on with nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import gin

from components.core.console import UserError
from components.core.storage import digest
from components.core.storage.manifest import MANIFEST
from components.core.storage.uri import display_path
from components.ppo.config import PpoConfig
from components.ppo.oversampling import read_oversampling

ARTIFACTS = ("corpus", "toolchain", "trace", "warmstart")
OPTIONS = (
    "problem",
    "modules",
    "samples",
    "credit_assignment",
    "algorithm",
    "objective",
    "module_weight",
    "validate_every",
    "ema_decay",
    "seed",
    "min_completed_fraction",
)
GIN, EMPHASIS = "gin settings", "list of modules to oversample"


def training_fingerprint(config: PpoConfig) -> dict[str, str]:
    """Name -> what it is: digests of the artifacts ("" for one without a manifest, such as another tool's corpus), of
    gin's bindings as they are now, with files and defaults, and of the emphasized names; options as text.

    How long, where and how patiently it trains is not among them: that may change from one run to the next.
    """
    names = sorted(read_oversampling(config.oversample_modules)) if config.oversample_modules else []
    return {
        **{name: _digest_of(getattr(config, name)) for name in ARTIFACTS},
        **{name: str(getattr(config, name)) for name in OPTIONS},
        GIN: hashlib.sha256(gin.config_str().encode()).hexdigest(),
        EMPHASIS: hashlib.sha256(json.dumps(names).encode()).hexdigest(),
    }


def folder_of(begun: Mapping[str, str]) -> str:
    """The name of a folder for a training that is begun with this."""
    return hashlib.sha256(json.dumps(begun, sort_keys=True).encode()).hexdigest()[:16]


class EarlierCredit(UserError):
    """A training of an earlier version, whose credit assignment and network this version does not have."""


def require_known_credit(root: Path, begun: Mapping[str, str]) -> None:
    """Refuse to go on with a training that was begun before credit could be measured.

    Raises:
        EarlierCredit: it was begun with the option --credit of earlier versions.
    """
    if "credit" in begun and "credit_assignment" not in begun:
        raise EarlierCredit(
            f"the training in {display_path(root)} was begun by an earlier version of this program, with --credit "
            f"{begun['credit']}, and cannot go on: credit assignment and the network's inputs are others now",
            "pass another --root-dir, or remove this one, to begin anew",
        )


def require_same(root: Path, begun: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises UserError unless a training in `root` that was begun with the one may go on with the other."""
    require_known_credit(root, begun)
    changed = [
        f"--{name.replace('_', '-')} {begun[name]} (now {value})" if name in OPTIONS else f"another {name}"
        for name, value in now.items()
        if begun.get(name, value) != value
    ]
    if changed:
        raise UserError(
            f"the training in {display_path(root)} was begun with {' and '.join(changed)}",
            "pass what it was begun with, or another --root-dir to begin anew",
        )


def _digest_of(directory: Path) -> str:
    return digest(directory) if (directory / MANIFEST).exists() else ""
