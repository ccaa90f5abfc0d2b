"""State of retraining: the deployed policy, the previous ones, and the modules that they regress.

A JSON document, in object storage or a file:

    {"version": 2, "deployed": DEPLOYED or null, "history": [DEPLOYED, newest first], "regressed": [module names]}

`regressed` repeats that of `deployed`; `mlgo ppo --oversample-modules` reads it. In version 1 it was stored only there:
it belonged to the policy promoted last, and a rollback did not change it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from components.core import problems
from components.core.console import UserError
from components.core.console.number_types import finite_float
from components.core.storage.input_files import expect_shape
from components.core.storage.versioned_json import VersionedJson, read_versioned, write_versioned

VERSION = 2
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


@dataclass(frozen=True)
class State:
    """The state document. Invariant: `deployed` is not in `history`."""

    deployed: Deployed | None = None
    history: tuple[Deployed, ...] = ()
    read: VersionedJson = field(default=VersionedJson(None, ""), compare=False)

    @property
    def regressed(self) -> tuple[str, ...]:
        """Modules that the deployed policy makes clearly worse."""
        return self.deployed.regressed if self.deployed else ()

    def promoted(self, deployed: Deployed) -> State:
        """Return the state with another policy deployed, and the previous one in the history."""
        history = ((self.deployed,) if self.deployed else ()) + self.history
        return replace(self, deployed=deployed, history=history[:KEPT])

    def rolled_back(self) -> State:
        """Return the state with the previous policy deployed again.

        Raises:
            UserError: there is no previous policy.
        """
        if not self.history:
            raise UserError("there is no previous policy to roll back to", "promote another policy first")
        return replace(self, deployed=self.history[0], history=self.history[1:])


def load_state(place: str) -> State:
    """Read the state at a path or URI; return an empty state if it does not exist yet."""
    read = read_versioned(place)
    if read.content is None:
        return State(read=read)
    with expect_shape(place, "a state of retraining", "restore an older one"):
        if read.content["version"] not in (1, VERSION):
            version = f"{read.content['version']!r:.20}"
            raise UserError(f"{place} has version {version}", f"this program reads 1 and {VERSION}")
        deployed = _deployed(read.content["deployed"])
        history = tuple(filter(None, map(_deployed, read.content["history"])))
        regressed = tuple(map(str, read.content["regressed"]))
        if deployed and read.content["version"] == 1:
            deployed = replace(deployed, regressed=regressed)
        return State(deployed, history, read)


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
    }
    write_versioned(place, content, state.read)


def _deployed(fields: Any) -> Deployed | None:
    if fields is None:
        return None
    numbers = (fields["reduction_percent"], fields["promoted_at"])
    if not all(isinstance(number, int | float) and abs(finite_float(number)) < 1e11 for number in numbers):
        raise ValueError("reduction_percent or promoted_at is not a number")
    texts = ("policy", "policy_digest", "problem", "llvm_version")
    if not all(isinstance(fields[name], str) for name in texts):
        raise ValueError(f"one of {', '.join(texts)} is not a string")
    problems.get(fields["problem"])
    names = {"features": tuple(fields["features"]), "regressed": tuple(map(str, fields.get("regressed", ())))}
    pairs = {key: tuple(fields[key]) if fields.get(key) is not None else None for key in ("ci95", "better_ci95")}
    return Deployed(**{**fields, **pairs, **names})
