"""Tests of the state of retraining in real object storage: races, and documents that were edited."""

from __future__ import annotations

import copy
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.platform.errors import UserError
from components.platform.storage.shared_state.versioned_json import Conflict, read_versioned, write_versioned
from components.platform.storage.uri import ObjectUri
from pipelines.retrain.promote import promote
from pipelines.retrain.state import KEPT_DECISIONS, Decision, Deployed, State, load_state, save_state
from tests.pipelines.retrain.test_promote import OLD, artifacts, deploy

NEW = replace(OLD, policy="gs://bucket/new", policy_digest="new", promoted_at=2.0)
DECISION = Decision(
    "not promoted",
    5.0,
    "me",
    "why",
    "gs://b/new",
    "n" * 64,
    "gs://b/run",
    OLD.policy_digest,
    0.1,
    (-1.0, 1.2),
    0.025,
    9,
)


@pytest.fixture
def state_path(any_uri: ObjectUri) -> str:
    """A state in each kind of object storage."""
    return f"{any_uri}/retrain.json"


def test_exactly_one_concurrent_promotion_wins_each_round(state_path: str, tmp_path: Path) -> None:
    """All are compared with the same policy at once; each loser is compared again, with the winner.

    The policies are equally good, and clearly better than the deployed one.
    """
    old = deploy(state_path, tmp_path / "old", [990] * 8)
    runs = [artifacts(tmp_path / f"new{i}", [900 + i, 899, 901, 900, 902, 898, 900, 900]) for i in range(3)]
    evaluations = {run["policy"]: run["evaluation"] for run in [old, *runs]}
    together = threading.Barrier(len(runs))

    def take_part(number: int) -> str:
        def evaluate(policy: str) -> str:
            if policy == old["policy"]:
                together.wait(timeout=60)
            return evaluations[policy]

        return promote(state_path, runs[number], evaluate, f"writer {number}")

    with ThreadPoolExecutor(len(runs)) as pool:
        said = list(pool.map(take_part, range(len(runs))))
    (winner,) = [number for number, text in enumerate(said) if text.startswith("promoted")]
    state = load_state(state_path)
    assert state.deployed is not None and state.deployed.policy == runs[winner]["policy"]
    assert state.deployed.promoted_by == f"writer {winner}"
    assert [entry.policy for entry in state.history] == [old["policy"]]
    assert [entry.kind for entry in state.decisions] == ["not promoted", "not promoted", "promoted"]
    assert {entry.against for entry in state.decisions[:2]} == {state.deployed.policy_digest}
    assert state.comparisons == {state.deployed_digest: 2, state.history[0].policy_digest: 1}


def test_stale_state_is_not_written(state_path: str) -> None:
    first, second = load_state(state_path), load_state(state_path)
    save_state(state_path, first.promoted(OLD))
    with pytest.raises(Conflict, match="was modified concurrently"):
        save_state(state_path, second.promoted(replace(OLD, policy="gs://b/other")))
    assert load_state(state_path).deployed == OLD


def test_everything_is_read_back(state_path: str) -> None:
    written = load_state(state_path).promoted(replace(OLD, policy="gs://b/older")).promoted(OLD).decided(DECISION)
    save_state(state_path, written)
    assert load_state(state_path) == written and written.decisions == (DECISION,)
    assert written.comparisons == {OLD.policy_digest: 1}
    back = written.rolled_back("me", "slow", 9.0)
    save_state(state_path, replace(back, read=load_state(state_path).read))
    assert load_state(state_path) == back


def test_comparison_is_found_by_policy_deployment_and_week() -> None:
    state = State(OLD).decided(replace(DECISION, week="2026-W48"))
    assert state.comparison_of("n" * 64, "2026-W48") == replace(DECISION, week="2026-W48")
    assert state.comparison_of("n" * 64, "2026-W49") is None and state.comparison_of("o" * 64, "2026-W48") is None
    other = state.promoted(replace(OLD, policy_digest="x" * 64))
    assert other.comparison_of("n" * 64, "2026-W48") is None, "another policy is deployed by now"


def test_old_decisions_are_dropped_but_still_counted() -> None:
    state = State(OLD)
    for _ in range(KEPT_DECISIONS + 5):
        state = state.decided(DECISION)
    assert len(state.decisions) == KEPT_DECISIONS
    assert state.comparisons == {OLD.policy_digest: KEPT_DECISIONS + 5}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("deployed", "promoted_at"), "yesterday"),
        (("deployed", "promoted_at"), 1e300),
        (("deployed", "policy"), None),
        (("deployed", "problem"), "loops"),
        (("deployed", "ci95"), [1.0]),
        (("deployed", "features"), "a,b"),
        (("deployed", "comparisons"), -1),
        (("history",), {}),
        (("regressed",), [1]),
        (("decisions", 0, "kind"), "deleted"),
        (("decisions", 0, "alpha"), "0.05"),
        (("decisions", 0, "modules"), 1.5),
        (("decisions", 0), "promoted"),
    ],
)
def test_edited_state_is_refused_and_kept(state_path: str, path: tuple[Any, ...], value: object) -> None:
    save_state(state_path, load_state(state_path).promoted(OLD).decided(DECISION))
    read = read_versioned(state_path)
    content = copy.deepcopy(read.content)
    target: Any = content
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    assert content is not None
    write_versioned(state_path, content, read)
    with pytest.raises(UserError) as error:
        load_state(state_path)
    assert error.value.problem.startswith(state_path) and error.value.remedy == "restore an older one"
    assert read_versioned(state_path).content == content


def test_fields_of_a_later_version_are_kept(state_path: str) -> None:
    save_state(state_path, load_state(state_path).promoted(OLD).decided(DECISION))
    read = read_versioned(state_path)
    content = copy.deepcopy(read.content)
    assert content is not None
    content["approved_by"] = ["security"]
    content["deployed"]["signature"], content["decisions"][0]["ticket"] = "sig", 7
    write_versioned(state_path, content, read)
    save_state(state_path, load_state(state_path).promoted(NEW).decided(replace(DECISION, at=DECISION.at + 1)))
    after = read_versioned(state_path).content
    assert after is not None
    assert after["approved_by"] == ["security"]
    assert (after["history"][0]["signature"], after["decisions"][1]["ticket"]) == ("sig", 7)
    assert "signature" not in after["deployed"] and "ticket" not in after["decisions"][0]


def test_rollback_is_never_forgotten(state_path: str) -> None:
    state = load_state(state_path).promoted(OLD).promoted(NEW).rolled_back("me", "crashes", 1.0)
    for number in range(KEPT_DECISIONS + 1):
        state = state.decided(replace(DECISION, policy_digest=f"p{number}"))
    save_state(state_path, state)
    state = load_state(state_path)
    assert state.rollback_of(NEW.policy_digest) is not None and len(state.decisions) == KEPT_DECISIONS + 1
    state = state.promoted(NEW, replace(DECISION, kind="promoted", policy_digest=NEW.policy_digest))
    assert state.rollback_of(NEW.policy_digest) is None and len(state.decisions) == KEPT_DECISIONS


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(Deployed.__annotations__)), inner),
    max_leaves=20,
)
_DOCUMENTS = st.fixed_dictionaries(
    {"version": st.sampled_from([1, 2, 3])},
    optional={key: _JSON for key in ("deployed", "history", "regressed", "decisions")},
)


@given(document=_DOCUMENTS)
def test_any_document_is_read_or_refused(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    state_path = tmp_path_factory.mktemp("state") / "state.json"
    state_path.write_text(json.dumps(document))
    try:
        state = load_state(str(state_path))
    except UserError as error:
        assert str(state_path) in error.problem
    else:
        save_state(str(state_path), state)
        assert load_state(str(state_path)) == state


def test_counts_of_a_policy_that_was_promoted_twice_are_added(tmp_path: Path) -> None:
    known = Deployed("gs://a", "d" * 64, "inlining", "19.1.7", (), {}, 5.0, None, 0.0)
    entries = [asdict(replace(known, comparisons=count)) for count in (2, 7)]
    document = {"version": 3, "deployed": entries[0], "history": entries[1:], "regressed": []}
    (tmp_path / "state.json").write_text(json.dumps(document))
    assert load_state(str(tmp_path / "state.json")).comparisons == {"d" * 64: 9}


def test_implausible_count_of_comparisons_is_refused(tmp_path: Path) -> None:
    document = {"version": 4, "deployed": None, "history": [], "regressed": [], "comparisons": {"": 10**200}}
    (tmp_path / "state.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="not a state of retraining"):
        load_state(str(tmp_path / "state.json"))
