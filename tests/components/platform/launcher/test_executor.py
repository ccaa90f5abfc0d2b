"""KFP's ExecutorInput and ExecutorOutput."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from components.core.formats.policy import PolicyInfo, write_policy_info
from components.evaluation.report import terminal_report
from components.platform.errors import UserError
from components.platform.launcher.executor import (
    confusion_matrix,
    describe_lineage,
    find_outputs_at,
    flatten_numbers,
    parse_executor_input,
    select_numbers,
    write_executor_output,
)
from components.platform.storage import digest, publish

KFP_PYTHON = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines") / "bin" / "python"


def test_every_output_is_reported_with_its_metadata(tmp_path: Path) -> None:
    output_file = tmp_path / "deep" / "executor_output.json"
    artifact = {"name": "vocab", "uri": "gs://b/vocab", "type": {"schemaTitle": "system.Artifact"}}
    outputs = {"artifacts": {n: {"artifacts": [{**artifact, "name": n}]} for n in ("vocab", "metrics")}}
    write_executor_output({"outputs": {**outputs, "outputFile": str(output_file)}}, {"metrics": {"a.b": 1.0}})
    written = json.loads(output_file.read_text())["artifacts"]
    assert written["vocab"] == {"artifacts": [{**artifact, "metadata": {}}]}
    assert written["metrics"]["artifacts"][0]["metadata"] == {"a.b": 1.0}
    assert [path.name for path in output_file.parent.iterdir()] == [output_file.name]


def test_nothing_is_written_without_an_output_file() -> None:
    write_executor_output({}, {})


def test_confusion_matrix_is_that_of_kfp() -> None:
    matrix = {"categories": ["keep", "inline"], "rows": [[5, 1], [2, 9]]}
    script = (
        "import json, sys; from kfp import dsl; m = dsl.ClassificationMetrics(); d = json.loads(sys.argv[1]); "
        "m.log_confusion_matrix(d['categories'], d['rows']); print(json.dumps(m.metadata))"
    )
    done = subprocess.run([KFP_PYTHON, "-c", script, json.dumps(matrix)], capture_output=True, text=True, check=True)
    assert confusion_matrix(matrix) == json.loads(done.stdout)
    assert confusion_matrix(None) == {}


def test_outputs_are_found_by_their_uri() -> None:
    artifacts = {name: {"artifacts": [{"uri": uri}]} for name, uri in (("a", "gs://b/a"), ("b", "gs://b/b"))}
    assert find_outputs_at({"outputs": {"artifacts": artifacts}}, "gs://b/b") == ["b"]
    assert find_outputs_at({}, "gs://b/b") == []


def test_numbers_of_nested_documents_are_flattened() -> None:
    document = {"bytes": 7, "verdict": "better", "yes": True, "groups": {"unseen": {"percent": 1.5, "sizes": [1]}}}
    assert flatten_numbers(document) == {"bytes": 7.0, "groups.unseen.percent": 1.5}


def test_headline_has_the_chosen_numbers_in_their_order() -> None:
    document = {"a": 1, "ab": 2, "groups": {"unseen": {"percent": 1.5, "bytes": 4}, "seen": {"percent": 3}}}
    assert list(select_numbers(document, ["groups.unseen", "none", "a"])) == [
        "groups.unseen.percent",
        "groups.unseen.bytes",
        "a",
    ]
    assert select_numbers(document, []) == flatten_numbers(document)


def test_numbers_that_are_not_finite_do_not_fail_a_finished_step(tmp_path: Path) -> None:
    """KFP's launcher reads the file with protojson, which refuses NaN."""
    output_file = tmp_path / "out.json"
    outputs = {"artifacts": {"m": {"artifacts": [{"name": "m"}]}}, "outputFile": str(output_file)}
    rows = [{"row": [1.0, 2.0]}]
    write_executor_output({"outputs": outputs}, {"m": {"a": float("nan"), "b": float("-inf"), "c": 1.5, "rows": rows}})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    written = json.loads(output_file.read_text(), parse_constant=refuse)
    assert written["artifacts"]["m"]["artifacts"][0]["metadata"] == {"c": 1.5, "rows": rows}


def test_lineage_of_a_policy_has_the_digests_of_its_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_GIT_COMMIT", "abc")
    with publish(tmp_path / "policy", "policy") as directory:
        info = PolicyInfo("inlining", (), 2, "ppo", llvm_version="19.1.7")
        write_policy_info(directory, replace(info, corpus_digest="c" * 64, toolchain_digest="t" * 64))
    properties = describe_lineage(tmp_path / "policy")
    assert properties.pop("bytes") > 0
    assert properties == {
        "digest": digest(tmp_path / "policy"),
        "files": 1,
        "git_commit": "abc",
        "problem": "inlining",
        "trained_by": "ppo",
        "llvm_version": "19.1.7",
        "corpus_digest": "c" * 64,
        "toolchain_digest": "t" * 64,
    }


def test_lineage_of_a_compiler_names_llvm_and_its_policies(tmp_path: Path) -> None:
    described = {"version": 1, "mode": "release", "llvm_version": "19.1.7", "triple": "x86_64-linux", "features": {}}
    with publish(tmp_path / "release", "toolchain") as directory:
        (directory / "toolchain.json").write_text(
            json.dumps(described | {"built": {"policies": {"inlining": "d" * 64}}})
        )
    properties = describe_lineage(tmp_path / "release")
    assert (
        properties["mode"] == "release"
        and properties["llvm_version"] == "19.1.7"
        and properties["triple"] == "x86_64-linux"
    )
    assert properties["inlining_policy_digest"] == "d" * 64 and properties["digest"] == digest(tmp_path / "release")
    with publish(tmp_path / "training", "toolchain") as directory:
        (directory / "toolchain.json").write_text(json.dumps(described | {"mode": "training", "built": {}}))
    assert "inlining_policy_digest" not in describe_lineage(tmp_path / "training")
    with publish(tmp_path / "broken", "trace") as directory:
        (directory / "toolchain.json").write_text("{}")
    with pytest.raises(UserError, match="artifact"):
        describe_lineage(tmp_path / "broken")


def test_lineage_of_an_evaluation_names_its_policy(tmp_path: Path) -> None:
    metrics = {
        "problem": "inlining",
        "verdict": "better",
        "inputs": {"policy_digest": "d" * 64, "llvm_version": "19.1.7"},
    }
    with publish(tmp_path / "evaluation", "evaluation") as directory:
        (directory / terminal_report.METRICS).write_text(json.dumps(metrics))
    properties = describe_lineage(tmp_path / "evaluation")
    assert (properties["policy_digest"], properties["llvm_version"]) == ("d" * 64, "19.1.7") and properties[
        "verdict"
    ] == "better"
    with publish(tmp_path / "other", "trace") as directory:
        (directory / terminal_report.METRICS).write_text("[1]")
    assert set(describe_lineage(tmp_path / "other")) <= {"digest", "files", "bytes", "git_commit"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"outputs": 3}'])
def test_invalid_executor_input_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--executor-input"):
        parse_executor_input(text)
