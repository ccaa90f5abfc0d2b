"""Tests of the notes that say which policy the release clang embeds, and which one to take."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.objectives import SCORE, SIZE
from components.evaluation.measurements import Measurements
from components.evaluation.metrics import refuse_without_gain_over_start, summarize
from components.evaluation.metrics_types import Inputs, Metrics
from components.evaluation.report import terminal_report
from components.evaluation.report.html_report import write_page
from components.evaluation.report.policy_choice import (
    caveats,
    comparison_notes,
    estimate_lines,
    headline,
    policy_row,
    reference_row,
    release_notes,
    start_row,
)

BASE = np.full(40, 1000)
"""Modules of known projects, then as many of unseen ones."""


def make_sizes(seen: tuple[int, int], unseen: tuple[int, int], other: str = "reference") -> Measurements:
    """Return sizes: (bytes less under the policy, under the other one) of each known and each unseen module, those of
    twenty projects and these of five."""
    noise = np.tile([-3, 3, -2, 2], 5)
    policy = np.concatenate([BASE[:20] - seen[0] + noise, BASE[20:] - unseen[0] - noise])
    compared = np.concatenate([BASE[:20] - seen[1] - noise, BASE[20:] - unseen[1] + noise])
    return Measurements(
        objective=SIZE,
        modules=tuple(f"{index}.o" for index in range(40)),
        projects=tuple(f"known{index}" for index in range(20)) + tuple(f"unseen{index // 4}" for index in range(20)),
        unseen_project=np.arange(40) >= 20,
        values={"baseline": BASE, "policy": policy, other: compared},
        languages=("c++",) * 40,
    )


def metrics_of(values: Measurements, embedded: str = "", **inputs: Any) -> Metrics:
    """Return metrics; `embedded`: the role of the policy that the release clang embeds, by default as it is chosen."""
    metrics = summarize(values, 0.5)
    metrics.inputs = Inputs(**inputs)
    chosen: Any = embedded or ("trained" if metrics.verdict == "better" else "none")
    metrics.release_policy = chosen
    return metrics


@pytest.mark.parametrize(
    ("seen", "unseen", "expected"),
    [
        ((30, 20), (30, 20), "take this policy, not the pretrained one"),
        ((20, 30), (20, 30), "take the pretrained policy, not this one ("),
        ((25, 25), (25, 25), "take either this policy or the pretrained one: the difference is within noise"),
        ((80, 20), (20, 30), "take this policy for these projects, the pretrained one for other code ("),
        ((20, 80), (30, 20), "take the pretrained policy for these projects, this one for other code ("),
        ((30, 20), (25, 25), "take this policy, not the pretrained one"),
        ((25, 25), (20, 30), "take the pretrained policy, not this one ("),
    ],
)
def test_notes_say_which_of_trained_and_pretrained_policy_to_take(
    seen: tuple[int, int], unseen: tuple[int, int], expected: str, tmp_path: Path
) -> None:
    values = make_sizes(seen, unseen)
    metrics = metrics_of(values, reference="pretrained")
    *_others, choice = comparison_notes(metrics)
    assert choice.startswith(expected)
    assert ("--policy pretrained --output DIR" in choice) is expected.endswith("(")
    compared = 100 * (seen[0] - seen[1] + unseen[0] - unseen[1]) / (2 * (1000 - (seen[1] + unseen[1]) / 2))
    figures = f"{abs(compared):.2f}% {'smaller' if compared > 0 else 'larger'}" if compared else "same"
    against = comparison_notes(metrics)[0]
    assert f"held-out modules {figures};" in against and "from 25 projects" in against
    write_page(tmp_path / "report.html", metrics, values, None)
    page = (tmp_path / "report.html").read_text()
    for note in (choice, against):
        assert note in terminal_report.footer_lines(metrics, tmp_path)
        assert f"- {note}" in terminal_report.markdown(metrics) and note in page


def test_fine_tuned_policy_is_compared_with_its_start() -> None:
    start = {"warmstart_trained_by": "ppo", "warmstart_pretrained": "pretrained"}
    metrics = metrics_of(make_sizes((20, 30), (20, 30), "warmstart"), **start)
    against, choice = comparison_notes(metrics)
    assert "1.03% larger" in against
    assert choice.startswith("take the pretrained") and "--start-from" not in choice
    metrics.inputs.warmstart_pretrained = ""
    (against,) = comparison_notes(metrics)
    assert "1.03% larger" in against
    metrics.inputs.warmstart_trained_by = "warmstart"
    assert comparison_notes(metrics) == [], "a policy that imitates the heuristic is no alternative"


def test_policy_that_loses_to_the_heuristic_is_not_recommended() -> None:
    metrics = metrics_of(make_sizes((-30, -20), (-30, -20)), "trained", reference="pretrained")
    assert not any(note.startswith("take ") for note in comparison_notes(metrics))
    # The pretrained policy is better than both, but within noise.
    values = make_sizes((0, 0), (0, 0))
    values.values["reference"][0] -= 1
    metrics = metrics_of(values, "trained", reference="pretrained")
    assert metrics.reference is not None and metrics.reference.reduction_percent == pytest.approx(0.0025)
    assert not any(note.startswith("take ") for note in comparison_notes(metrics))


def test_notes_say_what_the_release_clang_embeds() -> None:
    metrics = metrics_of(make_sizes((30, 0), (30, 0)))
    assert (metrics.verdict, release_notes(metrics)) == ("better", [])
    metrics = metrics_of(make_sizes((2, 30), (2, 30)), "trained", reference="pretrained")
    (note,) = release_notes(metrics)
    assert "although" in note
    metrics.release_policy = "pretrained"
    (note,) = release_notes(metrics)
    assert "pretrained policy" in note
    assert not any(note.startswith("take ") for note in comparison_notes(metrics)), "the release clang has it"
    metrics = metrics_of(make_sizes((-30, 0), (-30, 0)), "trained")
    (note,) = release_notes(metrics)
    assert "not better" in note and "stock clang" in note


def noisy_sizes() -> Measurements:
    """Return sizes that are 1% smaller in sum, because unseen projects become 12% larger or up to 14% smaller."""
    values = make_sizes((10, 0), (10, 0))
    change = np.concatenate([np.full(20, 10), np.repeat([130, -110, 140, -120, 10], 4)])
    return replace(values, values=values.values | {"policy": BASE - change})


def test_notes_on_a_gain_that_is_not_shown(tmp_path: Path) -> None:
    metrics = metrics_of(noisy_sizes(), reference="pretrained")
    reason = "because other modules of these projects may gain nothing"
    (note,) = release_notes(metrics)
    assert note.startswith("no release clang") and reason in note
    metrics.release_policy = "trained"
    assert "although" in release_notes(metrics)[0]
    metrics.release_policy = "pretrained"
    assert reason in release_notes(metrics)[0]
    verdict = f"not shown, {reason} (measured: 1.00% smaller on 40 held-out modules"
    assert terminal_report.footer_lines(metrics, tmp_path)[0].startswith(f"verdict: {verdict}; required")
    assert terminal_report.markdown(metrics).startswith(f"Verdict: {verdict})")


def test_choice_by_fewer_than_five_projects_is_for_these_only() -> None:
    for other, expected in (
        (-10, "take this policy for these projects, not the pretrained one; fewer than five projects do not tell"),
        (50, "take the pretrained policy for these projects, not this one; fewer than five projects do not tell"),
    ):
        metrics = metrics_of(select(make_sizes((20, other), (0, 0)), np.arange(40) < 4), reference="pretrained")
        assert metrics.verdict == "better"
        assert comparison_notes(metrics)[-1].startswith(expected)


@pytest.mark.parametrize("projects", [6, 12])
def test_equal_policies_get_no_advice(projects: int) -> None:
    """Both are equally good on average, and differ by 1.3 points by project, as two pretrained policies do."""
    generator, advised = np.random.default_rng(7), 0
    for _ in range(200):
        project = np.repeat(np.arange(projects), 8)
        baseline = np.exp(generator.standard_normal(projects))[project] * np.exp(
            generator.standard_normal(project.size)
        )
        common = 8 + 7 * generator.standard_normal(projects)[project]
        apart = 1.3 * generator.standard_normal(projects)[project] + 2 * generator.standard_normal(project.size)
        sizes = {"baseline": baseline, "reference": baseline * (1 - common / 100)}
        sizes["policy"] = baseline * (1 - (common + apart) / 100)
        measured = Measurements(
            SIZE,
            tuple(f"{index}.o" for index in range(project.size)),
            tuple(f"p{number}" for number in project),
            project % 2 == 0,
            {name: np.round(column * 10_000).astype(np.int64) for name, column in sizes.items()},
        )
        metrics = metrics_of(measured, "trained", reference="pretrained")
        advised += any(re.match("take (this|the)", note) for note in comparison_notes(metrics))
    assert advised / 200 <= 0.06


def test_start_without_gain_comes_with_the_advice_to_use_stock_clang() -> None:
    """As from a run with release_if=always that started from a policy for other code."""
    metrics = metrics_of(make_sizes((-30, -20), (-30, -20), "warmstart"), "start", warmstart_trained_by="ppo")
    embedded, advice = release_notes(metrics)
    assert "2.00% larger" in embedded and embedded.index("2.00%") < embedded.index("3.00%")
    assert "stock clang" in advice


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ({}, "no other one"),
        ({"reference": "/a/policy"}, "no other one"),
        ({"reference": "pretrained"}, "the pretrained policy is not"),
        ({"warmstart_trained_by": "ppo"}, "training started from is not"),
    ],
)
def test_notes_without_a_release_clang_recommend_stock_clang_alone(inputs: dict[str, str], why: str) -> None:
    """The pretrained policy is better than the trained one, beyond noise, but by less than the verdict requires."""
    values = make_sizes((-20, 3), (-20, 3), "warmstart" if "warmstart_trained_by" in inputs else "reference")
    metrics = metrics_of(values, **inputs)
    assert metrics.release_policy == "none"
    (note,) = release_notes(metrics)
    assert note.startswith("no release clang") and why in note and "use stock clang" in note
    assert not any(note.startswith("take ") for note in comparison_notes(metrics))


def test_metrics_of_earlier_versions_do_not_say_that_no_release_clang_is_built() -> None:
    for seen, clang in ((30, None), (-30, "/run/release/bin/clang")):
        metrics = metrics_of(make_sizes((seen, 0), (seen, 0)), "none", release_clang=clang)  # the default
        assert release_notes(metrics) == []


def test_one_held_out_module_is_no_choice_between_policies() -> None:
    """The pretrained policy makes the module smaller, so no note may say that no policy does, or to take either."""
    values = select(make_sizes((3, 303), (0, 0)), np.arange(40) == 1)
    values.values.update(policy=BASE[:1], reference=BASE[:1] - 300)
    metrics = metrics_of(values, "trained", reference="pretrained")
    trained, pretrained = release_notes(metrics)
    assert "not better" in trained and "30.00% smaller" in pretrained
    choice = comparison_notes(metrics)[-1]
    assert "too few" in choice and "--policy pretrained --output DIR" in choice


def test_notes_on_scores_have_no_verb_before_lower_scores() -> None:
    """ "are 2.00% lower scores" is no English."""
    values = replace(
        make_sizes((-30, 20), (-30, 20)),
        objective=SCORE,
        functions=tuple(f"f{index}" for index in range(40)),
        module=np.arange(40),
        languages=(),
    )
    metrics = metrics_of(values, reference="pretrained")
    metrics.problem = "regalloc"
    for role in ("trained", "pretrained", "none"):
        metrics.release_policy = role  # type: ignore[assignment]
        notes = " ".join([*release_notes(metrics), *comparison_notes(metrics)])
        assert not re.search(r"(are|makes|them) [0-9.]*%? ?(lower|higher) scores|scores lower scores", notes), notes
        assert "heuristic" in notes or role != "trained"


def test_report_on_another_policy_names_the_trained_one(tmp_path: Path) -> None:
    """The report on a release clang that embeds the start is about the start; its reference is the trained policy."""
    metrics = metrics_of(
        make_sizes((30, 20), (30, 20)),
        "start",
        policy_role="start",
        trained_verdict="not better, because it is not better than the policy that training started from",
        reference="/run/policy",
        release_clang="/run/release/bin/clang",
        warmstart_pretrained="pretrained",
    )
    assert "trained policy, not embedded" in dict(terminal_report.value_rows(metrics))
    (note,) = release_notes(metrics)
    assert "embeds the pretrained policy" in note and note.endswith("policy, 2.00% smaller with the trained one")
    assert comparison_notes(metrics) == []
    subject = "erdict on the policy that training started from: better"
    assert terminal_report.footer_lines(metrics, tmp_path)[0].startswith(f"v{subject} (")
    assert f"V{subject} (" in terminal_report.markdown(metrics)
    assert f"**{note[0].upper()}{note[1:]}.**" in terminal_report.markdown(metrics)


def test_headline_has_one_direction() -> None:
    """No headline says that a policy is not better and smaller, or better and not to take, as two clauses."""
    metrics = metrics_of(make_sizes((30, 0), (30, 0)))
    assert headline(metrics).startswith("Better: 3.00% smaller") and "2.92% to 3.08%" in headline(metrics)
    metrics = metrics_of(noisy_sizes())
    assert metrics.verdict == "not shown" and headline(metrics).startswith("Not shown: 1.00% smaller")
    metrics = metrics_of(make_sizes((2, 0), (2, 0)))
    assert headline(metrics).startswith("Not better: 0.20% smaller") and headline(metrics).endswith("required 0.5%")
    metrics = metrics_of(make_sizes((-30, 0), (-30, 0)))
    assert headline(metrics).startswith("Not better: 3.00% larger")
    metrics = metrics_of(make_sizes((30, 0), (30, 0)))
    metrics.verdict, metrics.refused_because = "not better", "C modules of unseen projects are 0.17% larger"
    assert headline(metrics).startswith("Not better") and "0.17% larger" in headline(metrics)
    metrics = metrics_of(make_sizes((20, 30), (20, 30)), reference="pretrained")
    assert "better still" in headline(metrics)
    metrics = metrics_of(select(make_sizes((20, 50), (20, 50)), np.arange(40) < 4), reference="pretrained")
    assert headline(metrics).endswith("projects: 5.00% smaller")
    metrics = metrics_of(make_sizes((80, 20), (20, 30)), reference="pretrained")
    assert "better still" not in headline(metrics), "only on some of the modules"
    start = {"warmstart_trained_by": "ppo", "warmstart_pretrained": "pretrained"}
    metrics = metrics_of(make_sizes((20, 30), (20, 30), "warmstart"), **start)
    refuse_without_gain_over_start(metrics, "ppo")
    assert "3.00% smaller" in headline(metrics)


def test_rows_name_the_unchanged_pretrained_policy() -> None:
    metrics = metrics_of(make_sizes((20, 30), (20, 30)), reference="pretrained-llvm")
    assert (reference_row(metrics), start_row(metrics)) == ("unchanged pretrained-llvm policy", "warmstart policy")
    assert policy_row(metrics) == "policy, compiled by the release clang"
    metrics.inputs = Inputs(
        warmstart_pretrained="pretrained", warmstart_trained_by="ppo", reference="/runs/other/policy"
    )
    assert (reference_row(metrics), start_row(metrics)) == ("policy of --compare-with", "unchanged pretrained policy")
    metrics.inputs = Inputs(warmstart_trained_by="ppo", policy_role="pretrained", policy_pretrained="pretrained")
    assert start_row(metrics) == "policy that training started from"
    assert policy_row(metrics) == "unchanged pretrained policy, compiled by the release clang"
    assert reference_row(metrics) == "trained policy, not embedded"


def select(values: Measurements, chosen: np.ndarray) -> Measurements:
    """Return some of the modules."""
    return replace(
        values,
        modules=tuple(np.array(values.modules)[chosen]),
        projects=tuple(np.array(values.projects)[chosen]),
        unseen_project=values.unseen_project[chosen],
        values={name: column[chosen] for name, column in values.values.items()},
        languages=tuple(np.array(values.languages)[chosen]),
        sources=values.sources[chosen],
    )


def test_few_units_and_a_missing_group_are_said() -> None:
    values = make_sizes((30, 0), (30, 0))
    metrics = metrics_of(values)
    modules, projects = estimate_lines(metrics)
    assert caveats(metrics) == [] and ": 3.00% smaller," in modules
    assert "5 projects" in projects
    metrics = metrics_of(select(values, np.arange(40) < 3))
    (known,) = caveats(metrics)
    assert "training saw" in known
    (few,) = estimate_lines(metrics)
    assert few.endswith(", from 3 modules")
    metrics = metrics_of(select(values, np.arange(40) == 39))
    (unseen,) = caveats(metrics)
    assert "did not" in unseen
    one, projects = estimate_lines(metrics)
    assert "1 module" in one
    assert "without an interval: 1 project" in projects
    assert metrics.verdict == "not shown"


def test_code_that_a_pretrained_policy_knows_is_said(tmp_path: Path) -> None:
    known = {"pretrained": ["zstd", "pugixml"]}
    metrics = metrics_of(make_sizes((30, 0), (30, 0)), pretrained_trained_on=known, warmstart_pretrained="pretrained")
    (note,) = caveats(metrics)
    assert "training started" in note and "zstd, pugixml" in note
    metrics.inputs = Inputs(pretrained_trained_on=known, policy_role="pretrained", policy_pretrained="pretrained")
    (note,) = caveats(metrics)
    assert "training started" not in note and "zstd, pugixml" in note
    write_page(tmp_path / "report.html", metrics, make_sizes((30, 0), (30, 0)), None)
    assert note[1:] in (tmp_path / "report.html").read_text()
    assert note in terminal_report.footer_lines(metrics, tmp_path) and f"- {note}" in terminal_report.markdown(metrics)


def test_groups_are_columns_only_if_there_are_both() -> None:
    values = make_sizes((30, 0), (30, 0))
    both = metrics_of(values)
    assert [title for title, _ in terminal_report.shown_columns(both)] == list(terminal_report.COLUMNS)
    one = metrics_of(select(values, np.arange(40) < 20))
    assert [title for title, _ in terminal_report.shown_columns(one)] == ["all held-out"]
    assert all(len(cells) == 1 for _, cells in terminal_report.table_rows(one))
    assert "unseen" not in terminal_report.markdown(one).split("|---")[0]


def test_pretrained_policy_is_named_where_a_start_keeps_it_from_being_embedded() -> None:
    values = make_sizes((-20, 30), (-20, 30))
    values = replace(values, values=values.values | {"warmstart": BASE})
    metrics = metrics_of(values, warmstart_trained_by="ppo", reference="pretrained")
    _nothing, other = release_notes(metrics)
    assert "held-out modules 3.00% smaller (mlgo toolchain --mode release --policy pretrained --output DIR)" in other
