"""The policies that come with this project: released data, not code. One folder for each problem:

    weights.npz      the weights (components/core/policy/dense.py), compressed
    policy.json      the origin (components/core/formats/policy.py)
    model-card.md    the purpose, the training, and the effect on unseen code
    by_package.csv   held-out results, a line for each project
    trained_on.txt   the projects with training modules, one name per line

A step accepts the word `pretrained` as the directory of a policy, and generates the other files of the policy artifact
in the cache directory.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np

from components.core import problems
from components.core.console import UserError
from components.core.formats.policy import POLICY_JSON, PRETRAINED
from components.core.policy.dense import WEIGHTS_FILE, DensePolicy, read_dense
from components.core.policy.export import write_source, write_weights
from components.core.policy.fixed_point import round_weights
from components.core.policy.shared_object import build_shared_object
from components.core.storage import MANIFEST, publish
from components.core.storage.cache import default_cache_dir

_HERE = Path(__file__).parent
MODEL_CARD = "model-card.md"
BY_PACKAGE = "by_package.csv"
TRAINED_ON = "trained_on.txt"


def pretrained_problems() -> tuple[str, ...]:
    """Return the problems that have a pretrained policy."""
    return tuple(name for name in problems.names() if (_HERE / name / WEIGHTS_FILE).is_file())


def pretrained_policy(problem: str, cache: Path | None = None, clang: Path | None = None) -> Path:
    """Return the directory of the pretrained policy for a problem: all that a release clang is built from.

    Args:
        cache: parent directory, by default the user's cache directory.
        clang: compiles policy.so, which a training clang loads; None leaves that out.

    Raises:
        UserError: this problem has no pretrained policy.
    """
    if problem not in pretrained_problems():
        known = ", ".join(pretrained_problems())
        raise UserError(f"no pretrained policy for {problem} comes with this project", f"policies exist for: {known}")
    released = _HERE / problem
    content = [released / WEIGHTS_FILE, released / POLICY_JSON, *sorted(_HERE.parent.glob("*.py"))]
    content += sorted((_HERE.parent / "cpp").iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in content)).hexdigest()[:16]
    name = f"{problem}-{digest}-training" if clang else f"{problem}-{digest}"
    directory = (cache or default_cache_dir()).absolute() / PRETRAINED / name
    if not (directory / MANIFEST).is_file():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with publish(directory) as partial:
            _write_artifact(read_dense(released), released, partial)
            if clang:
                build_shared_object(partial, clang)
    return directory


def pretrained_projects(problem: str) -> set[str]:
    """Return the projects that the pretrained policy for a problem was trained on."""
    return set((_HERE / problem / TRAINED_ON).read_text(encoding="utf-8").split())


def _write_artifact(dense: DensePolicy, released: Path, directory: Path) -> None:
    write_source(dense, directory)
    write_weights(dense, directory)
    for name in (POLICY_JSON, MODEL_CARD):
        shutil.copyfile(released / name, directory / name)


def release(policy: Path, directory: Path) -> None:
    """Write the files to release of a trained policy: weights of 16 bits, a tenth as large, and policy.json.

    Raises:
        UserError: `policy` is not a policy.
    """
    directory.mkdir(parents=True, exist_ok=True)
    round_weights(read_dense(policy)).save(directory)
    with np.load(directory / WEIGHTS_FILE, allow_pickle=False) as opened:
        arrays = dict(opened)
    np.savez_compressed(directory / WEIGHTS_FILE, **arrays)
    shutil.copyfile(policy / POLICY_JSON, directory / POLICY_JSON)
