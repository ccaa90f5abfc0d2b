"""What is deployed, what was before, and what each is bad at: a JSON document in object storage.

    {"version": 2, "deployed": DEPLOYED or null, "history": [DEPLOYED, newest first], "regressed": [module names]}

`regressed` is that of `deployed`, where `mlgo ppo --emphasize` reads it. In version 1 it stood there alone: it was that
of the policy promoted last, and a rollback left it as it was.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from components import problems
from components.console import UserError
from components.console.number_types import finite_float
from components.storage.document import Document, read_document, write_document
from components.storage.input_files import expect_shape

VERSION = 2
KEPT = 20
"""Entries of the history."""


@dataclass(frozen=True)
class Deployed:
    """A policy that was promoted.

    policy: where its artifact is. features: names, sorted. modules: name -> crc32c of the bitcode of the corpus that it
    was trained and judged on. reduction_percent, ci95: of its gate. promoted_at: seconds since the epoch. run: where
    the run that made it is. better_percent: against the policy before it, with interval; None for the first.
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
    """The document. Invariant: `deployed` is not in `history`."""

    deployed: Deployed | None = None
    history: tuple[Deployed, ...] = ()
    read: Document = field(default=Document(None, ""), compare=False)

    @property
    def regressed(self) -> tuple[str, ...]:
        """Modules that the deployed policy makes larger."""
        return self.deployed.regressed if self.deployed else ()

    def promoted(self, deployed: Deployed) -> State:
        """With another policy deployed; the one before is history."""
        history = ((self.deployed,) if self.deployed else ()) + self.history
        return replace(self, deployed=deployed, history=history[:KEPT])

    def rolled_back(self) -> State:
        """With the policy before deployed again. UserError if there is none."""
        if not self.history:
            raise UserError("there is no policy before the deployed one", "nothing was promoted before it")
        return replace(self, deployed=self.history[0], history=self.history[1:])


def load_state(place: str) -> State:
    """Reads the state at a path or gs:// URI; an empty one where there is none yet."""
    read = read_document(place)
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
    """Writes it. UserError if somebody changed it since it was read."""
    content = {
        "version": VERSION,
        "deployed": asdict(state.deployed) if state.deployed else None,
        "history": [asdict(entry) for entry in state.history],
        "regressed": list(state.regressed),
    }
    write_document(place, content, state.read)


def _deployed(fields: Any) -> Deployed | None:
    if fields is None:
        return None
    numbers = (fields["reduction_percent"], fields["promoted_at"])
    if not all(isinstance(number, int | float) and abs(finite_float(number)) < 1e11 for number in numbers):
        raise ValueError("reduction_percent or promoted_at is no number")
    texts = ("policy", "policy_digest", "problem", "llvm_version")
    if not all(isinstance(fields[name], str) for name in texts):
        raise ValueError(f"one of {', '.join(texts)} is no text")
    problems.get(fields["problem"])
    names = {"features": tuple(fields["features"]), "regressed": tuple(map(str, fields.get("regressed", ())))}
    pairs = {key: tuple(fields[key]) if fields.get(key) is not None else None for key in ("ci95", "better_ci95")}
    return Deployed(**{**fields, **pairs, **names})
