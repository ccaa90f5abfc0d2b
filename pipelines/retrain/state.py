"""State of retraining: the deployed policy, the previous ones, and the modules that they regress.

A JSON document, in object storage or a file:

    {"version": 3, "deployed": DEPLOYED or null, "history": [DEPLOYED, newest first], "regressed": [module names],
     "comparisons": 4}

`regressed` repeats that of `deployed`; `mlgo ppo --oversample-modules` reads it. In version 1 it was stored only there:
it belonged to the policy promoted last, and a rollback did not change it. Version 3 adds who promoted a policy and why,
the digests of what it was made of, and `comparisons`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Annotated

import msgspec

from components.core import problems
from components.core.console import UserError
from components.core.console.number_types import finite_float
from components.core.storage.input_files import expect_shape
from components.core.storage.versioned_json import VersionedJson, read_versioned, write_versioned

VERSION = 3
KEPT = 20
"""Maximum number of history entries."""


@dataclass(frozen=True)
class Deployed:
    """A promoted policy.

    Attributes:
        policy: location of its artifact.
        features: names of its features, sorted.
        modules: name -> crc32c of the bitcode of the corpus that it was trained and evaluated on.
        reduction_percent, ci95: result of the evaluation at its promotion, with its 95% interval.
        promoted_at: seconds since the epoch.
        run: location of the run that trained it.
        better_percent, better_ci95: gain over the previous policy, with its 95% interval; None for the first.
        regressed: modules that it makes clearly worse than LLVM's heuristic does, the worst first.
        promoted_by: person or account that promoted it; "" if not known, as also the following.
        reason: what the comparison with the previous policy said.
        corpus_digest, toolchain_digest: content of its corpus and its training clang.
    """

    policy: str
    policy_digest: str
    problem: str
    llvm_version: str
    features: tuple[str, ...]
    modules: dict[str, str]
    reduction_percent: float
    ci95: tuple[float, float] | None
    promoted_at: float
    run: str = ""
    better_percent: float | None = None
    better_ci95: tuple[float, float] | None = None
    regressed: tuple[str, ...] = ()
    promoted_by: str = ""
    reason: str = ""
    corpus_digest: str = ""
    toolchain_digest: str = ""

    def __post_init__(self) -> None:
        problems.get(self.problem)
        intervals = [bound for interval in (self.ci95, self.better_ci95) if interval for bound in interval]
        for number in (self.reduction_percent, self.promoted_at, self.better_percent or 0.0, *intervals):
            if not abs(finite_float(number)) < 1e11:
                raise ValueError(f"{number} is not plausible")


@dataclass(frozen=True)
class State:
    """The state document. Invariant: `deployed` is not in `history`.

    Attributes:
        comparisons: comparisons with the deployed policy since it was promoted, none of which replaced it.
    """

    deployed: Deployed | None = None
    history: tuple[Deployed, ...] = ()
    comparisons: int = 0
    read: VersionedJson = field(default=VersionedJson(None, ""), compare=False)

    @property
    def regressed(self) -> tuple[str, ...]:
        """Modules that the deployed policy makes clearly worse."""
        return self.deployed.regressed if self.deployed else ()

    def promoted(self, deployed: Deployed) -> State:
        """Return the state with another policy deployed, and the previous one in the history."""
        history = ((self.deployed,) if self.deployed else ()) + self.history
        return replace(self, deployed=deployed, history=history[:KEPT], comparisons=0)

    def compared(self) -> State:
        """Return the state after another comparison that the deployed policy survived."""
        return replace(self, comparisons=self.comparisons + 1)

    def rolled_back(self) -> State:
        """Return the state with the previous policy deployed again.

        Raises:
            UserError: there is no previous policy.
        """
        if not self.history:
            raise UserError("there is no previous policy to roll back to", "promote another policy first")
        return replace(self, deployed=self.history[0], history=self.history[1:], comparisons=0)


def load_state(place: str) -> State:
    """Read the state at a path or URI; return an empty state if it does not exist yet."""
    read = read_versioned(place)
    if read.content is None:
        return State(read=read)
    version = read.content.get("version")
    if version not in range(1, VERSION + 1):
        raise UserError(f"{place} has version {version!r:.20}", f"this program reads 1 to {VERSION}")
    with expect_shape(place, "a state of retraining", "restore an older one"):
        document = msgspec.convert(read.content, _Document)
    deployed = document.deployed
    if deployed and version == 1:
        deployed = replace(deployed, regressed=document.regressed)
    return State(deployed, document.history, document.comparisons, read)


class _Document(msgspec.Struct):
    """The JSON document."""

    deployed: Deployed | None
    history: tuple[Deployed, ...]
    regressed: tuple[str, ...]
    comparisons: Annotated[int, msgspec.Meta(ge=0)] = 0


def save_state(place: str, state: State) -> None:
    """Write the state.

    Raises:
        UserError: another process changed it since it was read.
    """
    content = {
        "version": VERSION,
        "deployed": asdict(state.deployed) if state.deployed else None,
        "history": [asdict(entry) for entry in state.history],
        "regressed": list(state.regressed),
        "comparisons": state.comparisons,
    }
    write_versioned(place, content, state.read)
