"""State of retraining: the deployed policy, the previous ones, and who decided what, when and why.

A JSON document, in object storage or a file:

    {"version": 4, "deployed": DEPLOYED or null, "history": [DEPLOYED, newest first], "regressed": [module names],
     "decisions": [DECISION, newest first], "comparisons": {policy digest: number}}

`regressed` repeats that of `deployed`; `mlgo ppo --oversample-modules` reads it. In version 1 it was stored only there:
it belonged to the policy promoted last, and a rollback did not change it. Version 3 adds who promoted a policy and why,
the digests of what it was made of, and `decisions`. Version 4 counts comparisons by the digest of the policy that was
deployed, "" where none was: neither a rollback nor a promotion of the same policy begins a new count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

import msgspec

from components.core import problems
from components.platform.console.number_types import finite_float
from components.platform.errors import UserError
from components.platform.storage.input_files import typed
from components.platform.storage.shared_state.versioned_json import VersionedJson, read_versioned, write_versioned

VERSION = 4
KEPT = 20
KEPT_DECISIONS = 200
"""Maximum number of decisions, without rollbacks that hold: almost four years of weekly ones."""


@dataclass(frozen=True)
class Deployed:
    """A promoted policy.

    Attributes:
        policy: location of its artifact.
        features: names of its features, sorted.
        modules: name -> crc32c of the bitcode of the corpus that it was trained and evaluated on.
        reduction_percent, ci95: result of the evaluation at its promotion, with its 95% interval.
        promoted_at: seconds since the epoch.
        run: the run that trained it: its ID on a server (on Vertex AI its resource name), or its location.
        better_percent, better_ci95: gain over the previous policy, with its 95% interval; None for the first.
        regressed: modules that it makes clearly worse than LLVM's heuristic does, the worst first.
        promoted_by: person or account that promoted it; "" if not known, as also the following.
        reason: what the comparison with the previous policy said.
        corpus_digest, toolchain_digest: content of its corpus and its training clang.
        evaluation: location of the evaluation that decided, which has the model card.
        comparisons: number of comparisons of new policies with this one, of versions before 4.
        clang_version: as Toolchain.clang_version, of its training clang.
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
    evaluation: str = ""
    comparisons: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 0
    clang_version: str = ""

    def __post_init__(self) -> None:
        if self.problem not in problems.names():
            raise ValueError(f"there is no problem {self.problem!r}")
        _require_plausible(self.reduction_percent, self.promoted_at, self.better_percent, self.ci95, self.better_ci95)


@dataclass(frozen=True)
class Decision:
    """A policy was promoted, was not promoted, or was rolled back.

    Attributes:
        at: seconds since the epoch.
        by: person or account.
        reason: a sentence.
        policy, policy_digest: location and digest of the policy that the decision is about.
        run: as for Deployed.
        against: digest of the policy that was deployed; "" for LLVM's heuristic.
        percent, ci95: gain over what was deployed, with its 95% interval; None without a comparison.
        alpha: error probability that the comparison was allowed (pipelines.retrain.sequential).
        modules: number of modules compared.
        target, units: what the interval is for, and the number of its units (core/objectives/estimate.py).
        week: ISO week whose modules judged.
        reduction_percent, reduction_ci95: gain over LLVM's heuristic in the run's own report, with its 95% interval;
            None for a rollback.
        clang_version: as for Deployed; "" for a rollback.
    """

    kind: Literal["promoted", "not promoted", "rolled back"]
    at: float
    by: str
    reason: str
    policy: str
    policy_digest: str
    run: str = ""
    against: str = ""
    percent: float | None = None
    ci95: tuple[float, float] | None = None
    alpha: float | None = None
    modules: Annotated[int, msgspec.Meta(ge=0)] = 0
    week: str = ""
    reduction_percent: float | None = None
    reduction_ci95: tuple[float, float] | None = None
    target: str = ""
    units: Annotated[int, msgspec.Meta(ge=0)] = 0
    clang_version: str = ""

    def __post_init__(self) -> None:
        figures = (self.percent, self.alpha, self.ci95, self.reduction_percent, self.reduction_ci95)
        _require_plausible(self.at, *figures)


@dataclass(frozen=True)
class State:
    """The state document. Invariant: `deployed` is not in `history`.

    Attributes:
        decisions: newest first.
        comparisons: digest of a policy, "" for LLVM's heuristic -> number of new policies judged to replace it.
    """

    deployed: Deployed | None = None
    history: tuple[Deployed, ...] = ()
    decisions: tuple[Decision, ...] = ()
    comparisons: Mapping[str, int] = field(default_factory=dict)
    read: VersionedJson = field(default=VersionedJson(None, ""), compare=False)

    @property
    def deployed_digest(self) -> str:
        """Digest of the deployed policy; "" for LLVM's heuristic, which is deployed at the beginning."""
        return self.deployed.policy_digest if self.deployed else ""

    @property
    def regressed(self) -> tuple[str, ...]:
        """Modules that the deployed policy makes clearly worse."""
        return self.deployed.regressed if self.deployed else ()

    def require_outside(self, root: str) -> None:
        """Raise UserError if a run with artifacts at `root` would overwrite a policy that is or was deployed."""
        entries = [entry for entry in (self.deployed, *self.history) if entry is not None]
        if any(entry.policy.startswith(f"{root}/") for entry in entries):
            raise UserError(
                f"{root} contains a policy that is or was deployed, and this run would overwrite it",
                "use another --output or --pipeline-root for each run",
            )

    def promoted(self, deployed: Deployed, decision: Decision | None = None) -> State:
        """Return the state with another policy deployed, and the previous one in the history."""
        before = self if decision is None else self.decided(decision)
        history = ((before.deployed,) if before.deployed else ()) + before.history
        return replace(before, deployed=deployed, history=history[:KEPT])

    def decided(self, decision: Decision) -> State:
        """Return the state with another decision about a new policy, which counts as a comparison.

        A refusal by the new policy's own reports counts, too: they depend on the same held-out modules, so that the
        policies that they let pass are lucky ones, and luck that is not counted is not paid for.
        """
        counts = {**self.comparisons}
        counts[decision.against] = counts.get(decision.against, 0) + 1
        return replace(self, comparisons=counts, decisions=_newest(decision, self.decisions))

    def rolled_back(self, by: str = "", reason: str = "", now: float = 0.0) -> State:
        """Return the state with the previous policy deployed again. UserError if there is no previous policy."""
        if not self.history or self.deployed is None:
            raise UserError("there is no previous policy to roll back to", "promote another policy first")
        gone = self.deployed
        decision = Decision("rolled back", now, by, reason, gone.policy, gone.policy_digest, gone.run)
        return replace(
            self, deployed=self.history[0], history=self.history[1:], decisions=_newest(decision, self.decisions)
        )

    def rollback_of(self, policy_digest: str) -> Decision | None:
        """Return the rollback of a policy, unless it was promoted again since."""
        about = (entry for entry in self.decisions if entry.policy_digest == policy_digest)
        last = next((entry for entry in about if entry.kind != "not promoted"), None)
        return last if last is not None and last.kind == "rolled back" else None

    def repeats(self, decision: Decision) -> bool:
        """Return whether the last decision about this policy is the same one, as when a step is repeated."""
        last = next((entry for entry in self.decisions if entry.policy_digest == decision.policy_digest), None)
        return last is not None and replace(last, at=decision.at, by=decision.by) == decision

    def comparison_of(self, policy_digest: str, week: str) -> Decision | None:
        """Return the comparison of a policy with the deployed one in a week, None if there was none."""
        key = ("not promoted", policy_digest, self.deployed_digest, week)
        return next((e for e in self.decisions if (e.kind, e.policy_digest, e.against, e.week) == key), None)


def load_state(location: str) -> State:
    """Read the state at a path or URI; return an empty state if it does not exist yet."""
    read = read_versioned(location)
    if read.content is None:
        return State(read=read)
    version = read.content.get("version")
    if version not in range(1, VERSION + 1):
        raise UserError(f"{location} has version {version!r:.20}", f"this program reads 1 to {VERSION}")
    document = typed(read.content, _Document, location, "a state of retraining", "restore an older one")
    deployed = document.deployed
    if deployed and version == 1:
        deployed = replace(deployed, regressed=document.regressed)
    comparisons = document.comparisons
    if version in (1, 2, 3):
        counted = [entry for entry in (*document.history, deployed) if entry is not None]
        comparisons = {}
        for entry in counted:  # a policy that was promoted again has an entry, and a count, for each time
            if entry.comparisons:
                comparisons[entry.policy_digest] = comparisons.get(entry.policy_digest, 0) + entry.comparisons
    return State(deployed, document.history, document.decisions, comparisons, read)


class _Document(msgspec.Struct):
    """The JSON document."""

    deployed: Deployed | None
    history: tuple[Deployed, ...]
    regressed: tuple[str, ...]
    decisions: tuple[Decision, ...] = ()
    comparisons: dict[str, Annotated[int, msgspec.Meta(ge=0, le=10**9)]] = {}


def save_state(location: str, state: State) -> None:
    """Write the state. UserError if another process changed it since it was read."""
    before = state.read.content or {}
    entries = [*before.get("decisions", ()), *before.get("history", ()), before.get("deployed") or {}]
    content = {
        **before,
        "version": VERSION,
        "deployed": _with_unknown_fields(state.deployed, entries) if state.deployed else None,
        "history": [_with_unknown_fields(entry, entries) for entry in state.history],
        "regressed": list(state.regressed),
        "decisions": [_with_unknown_fields(entry, entries) for entry in state.decisions],
        "comparisons": dict(state.comparisons),
    }
    write_versioned(location, content, state.read)


def _with_unknown_fields(entry: Deployed | Decision, before: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of an entry, and those that a later version of this program has written into it."""
    known = asdict(entry)
    identity = ("policy_digest", "promoted_at") if isinstance(entry, Deployed) else ("policy_digest", "at", "kind")
    same = (old for old in before if all(old.get(name) == known[name] for name in identity))
    return {**next(same, {}), **known}


def _newest(decision: Decision, others: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """Return the newest decisions, and the rollbacks before them that hold: what was rolled back stays refused."""
    entries = (decision, *others)
    decided: set[str] = set()
    kept = []
    for number, entry in enumerate(entries):
        holds = entry.kind == "rolled back" and entry.policy_digest not in decided
        if entry.kind != "not promoted":
            decided.add(entry.policy_digest)
        if number < KEPT_DECISIONS or holds:
            kept.append(entry)
    return tuple(kept)


def _require_plausible(*figures: float | tuple[float, float] | None) -> None:
    """Raise ValueError unless all numbers are finite and of a plausible size; None is skipped."""
    for figure in figures:
        for number in figure if isinstance(figure, tuple) else () if figure is None else (figure,):
            if not abs(finite_float(number)) < 1e11:
                raise ValueError(f"{number} is not plausible")
