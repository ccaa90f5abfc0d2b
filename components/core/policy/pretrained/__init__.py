"""The policies that come with this project: released data, not code. One folder for each policy:

    weights.npz      the weights (components/core/policy/dense.py), compressed
    policy.json      the origin (components/core/formats/policy.py)
    model-card.md    the purpose, the training, and the effect on unseen code
    by_package.csv   held-out results, a line for each project
    trained_on.txt   the projects with training modules, one name per line

A step accepts the names in PRETRAINED_FOLDERS as the directory of a policy, and generates the other files of the policy
artifact in the cache directory. The policies of `pretrained-llvm` use LLVM's own features only: they start trainings
with clangs that others built, and go into an LLVM without our advisors. `pretrained-thumb` is for Thumb-2 code.

"trained_ranges" in policy.json of the policies for inlining are the first and the last boundary of their tables: the
quantiles 0 and 1, the smallest and the largest value of the trace. `unwind_tables`: x86-64 has them by default, C for a
microcontroller does not.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from components.core.formats.policy import POLICY_JSON, PRETRAINED, PRETRAINED_FOLDERS, load_policy_info
from components.core.policy.dense import WEIGHTS_FILE, DensePolicy, read_dense
from components.core.policy.export import write_source, write_weights
from components.core.policy.fixed_point import round_weights
from components.core.policy.generated.codegen import Training
from components.core.policy.generated.shared_object import build_shared_object
from components.platform.errors import UserError
from components.platform.storage import MANIFEST, publish
from components.platform.storage.cache import default_cache_dir

RELEASED = Path(__file__).parent
_CODE = Path(__file__).parents[1]
MODEL_CARD = "model-card.md"
TRAINED_ON = "trained_on.txt"
_VERSION = re.compile(r"[-_]v?\d[\w.+~-]*$")


def pretrained_problems(name: str = PRETRAINED) -> tuple[str, ...]:
    """Return the problems that have a pretrained policy of this name."""
    return tuple(
        problem for problem, folder in PRETRAINED_FOLDERS[name].items() if (RELEASED / folder / WEIGHTS_FILE).is_file()
    )


def pretrained_policy(
    problem: str, cache: Path | None = None, clang: Path | None = None, name: str = PRETRAINED
) -> Path:
    """Return the directory of the pretrained policy for a problem: all that a release clang is built from.

    Args:
        cache: parent directory, by default the user's cache directory.
        clang: compiles policy.so, which a training clang loads; None leaves that out.
        name: a key of PRETRAINED_FOLDERS.

    Raises:
        UserError: this problem has no pretrained policy of this name.
    """
    if problem not in pretrained_problems(name):
        raise _no_policy(name, problem)
    folder = PRETRAINED_FOLDERS[name][problem]
    released = RELEASED / folder
    content = [released / WEIGHTS_FILE, released / POLICY_JSON, *sorted(_CODE.rglob("*.py"))]
    content += sorted((_CODE / "generated" / "cpp").iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in content)).hexdigest()[:16]
    entry = f"{folder}-{digest}-training" if clang else f"{folder}-{digest}"
    directory = (cache or default_cache_dir()).absolute() / PRETRAINED / entry
    if not (directory / MANIFEST).is_file():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with publish(directory, "policy") as partial:
            dense = read_dense(released)
            write_source(dense, partial, training=Training.of(load_policy_info(released)))
            write_weights(dense, partial)
            for file in (POLICY_JSON, MODEL_CARD):
                shutil.copyfile(released / file, partial / file)
            if clang:
                build_shared_object(partial, clang)
    return directory


def resolve_pretrained(policies: Sequence[Path | str], decided: Collection[str]) -> list[Path]:
    """Replace the name of pretrained policies by those for the problems in `decided` that no other policy is for.

    Raises:
        UserError: a name has no policy for these problems, or two names have one for the same problem.
    """
    paths = [policy for policy in policies if isinstance(policy, Path)]
    names = sorted({policy for policy in policies if isinstance(policy, str)})
    chosen: dict[str, str] = {}
    for name in names:
        problems_of_name = [problem for problem in pretrained_problems(name) if problem in decided]
        if not problems_of_name:
            raise _no_policy(name, " or ".join(decided))
        for problem in problems_of_name:
            if problem in chosen:
                raise UserError(f"{chosen[problem]} and {name} are both policies for {problem}", "pass one of them")
            chosen[problem] = name
    others = {load_policy_info(policy).problem for policy in paths} if names else set()
    return paths + [pretrained_policy(problem, name=name) for problem, name in chosen.items() if problem not in others]


def _no_policy(name: str, problem: str) -> UserError:
    existing = ", ".join(pretrained_problems(name)) or "no problem"
    return UserError(f"no {name} policy for {problem} comes with this project", f"policies exist for: {existing}")


def pretrained_projects(problem: str, name: str = PRETRAINED) -> set[str]:
    """Return the projects that the pretrained policy of this name for a problem was trained on."""
    return set((RELEASED / PRETRAINED_FOLDERS[name][problem] / TRAINED_ON).read_text(encoding="utf-8").split())


def known_projects(problem: str, name: str, projects: Collection[str], modules: Collection[str]) -> list[str]:
    """Return the projects that a pretrained policy was trained on, and that these modules seem to be of.

    A project is known by its name, without version ("yaml-cpp-0.7.0", "libzstd"), or by a folder of a module with that
    name, in which many projects keep the code of others.
    """
    names = {*projects, *(part for module in modules for part in PurePosixPath(module).parts[:-1])}
    plain = {_plain_name(given) for given in names}
    return sorted(project for project in pretrained_projects(problem, name) if _plain_name(project) in plain)


def _plain_name(project: str) -> str:
    name = _VERSION.sub("", project.lower())
    return re.sub(r"^lib(?=.{3})|[-_.]", "", name)


def pretrained_name(problem: str, policy: Path) -> str:
    """Return the name of the pretrained policy with the network of the policy in a directory, "" if there is none."""
    if not (policy / WEIGHTS_FILE).is_file():
        return ""
    dense = read_dense(policy)
    names = [name for name in PRETRAINED_FOLDERS if problem in pretrained_problems(name)]
    released = {name: read_dense(RELEASED / PRETRAINED_FOLDERS[name][problem]) for name in names}
    return next((name for name in names if same_network(dense, released[name])), "")


def same_network(first: DensePolicy, second: DensePolicy) -> bool:
    """Return whether two policies have the same features and weights."""
    if first.features != second.features or len(first.layers) != len(second.layers):
        return False
    layers = zip(first.layers, second.layers, strict=True)
    return all(np.array_equal(a, b) for left, right in layers for a, b in zip(left, right, strict=True))


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
