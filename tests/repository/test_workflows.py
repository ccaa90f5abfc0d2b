"""Tests of the workflows: GitHub's schema, zizmor, shellcheck on their scripts, and references in their expressions.

Cloud Build's file is checked by its schema. Each check is shown to fail on a broken workflow.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from tests.support.commands import run_command
from tests.support.workflow_problems import problems
from tests.support.workflows import FOLDER, ROOT, WORKFLOWS, load, steps

CLOUD_BUILD = ROOT / "docker" / "cloudbuild.yaml"


def installed(name: str) -> str:
    """Return the path of a program that a Python package installs."""
    program = shutil.which(name, path=sysconfig.get_path("scripts"))
    assert program, f"{name} is missing: make setup-test"
    return program


def said(*command: object, text: str | None = None) -> str:
    """Return the output of a checker; empty if it found nothing."""
    done = subprocess.run([*map(str, command)], input=text, capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def by_schema(schema: str, *paths: Path) -> str:
    """Return the output of check-jsonschema, which uses its vendored schemas and fetches nothing."""
    return said(sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *paths)


def by_zizmor(*paths: Path) -> str:
    """Return what zizmor finds: unpinned actions, excessive permissions, untrusted text in scripts, and so on."""
    return said(installed("zizmor"), "--offline", "--no-progress", "--color=never", *paths)


def by_shellcheck(path: Path) -> str:
    """Return what shellcheck finds in each script of a workflow, with expressions replaced by a word."""
    scripts = [re.sub(r"\$\{\{.*?\}\}", "expression", step.script) for step in steps(load(path)) if step.script]
    return "".join(said(installed("shellcheck"), "--shell=bash", "-", text=script) for script in scripts)


def everything(path: Path) -> str:
    """Return what all checks of a workflow find."""
    return by_schema("github-workflows", path) + by_zizmor(path) + by_shellcheck(path) + "\n".join(problems(path))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_is_valid(name: str) -> None:
    assert everything(FOLDER / name) == ""
    for job in load(FOLDER / name)["jobs"].values():
        assert int(job["timeout-minutes"]) <= 360, "GitHub ends a job after six hours"


def test_shards_of_the_tests_are_all_kinds_of_tests() -> None:
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    job = load(FOLDER / "test.yml")["jobs"]["test"]
    assert {*job["strategy"]["matrix"]["marker"], "attack"} == {line.partition(":")[0] for line in ours}


@pytest.mark.parametrize(
    ("broken", "instead", "named"),
    [
        ("    timeout-minutes: 180", "    timeout-minuts: 180", "'timeout-minuts' was unexpected"),
        ("workflow_dispatch:", "workflow_dispach:", "workflow_dispach"),
        ("    needs: check", "    needs: chekc", "retrain needs chekc, which is not a job"),
        ("    if: vars.MLGO_STATE != '' && github.ref == 'refs/heads/main'", "    needs: retrain", "cycle"),
        ("inputs.preset }}", "inputs.amount }}", "inputs.amount is not declared"),
        ("needs.check.outputs.retrain", "needs.check.outputs.train", "needs.check.outputs.train is not declared"),
        ("steps.check.outputs", "steps.chekc.outputs", "steps.chekc.outputs.retrain is not declared"),
        ("CORPUS: ${{ vars.MLGO_CORPUS }}", "CORPUS: ${{ vars.MLGO_CROPUS }}", "vars.MLGO_CROPUS is not declared"),
        ("RUNS: ${{ vars.MLGO_RUNS }}", "RUNS: ${{ environment.RUNS }}", "environment.RUNS is not declared"),
        ('"$STATE" --corpus', '"$STAT" --corpus', "$STAT is in no env"),
        ("17 3 * * 1", "61 3 * * 1", "cron: 61 3 * * 1"),
        ('--state "$STATE" --corpus', "--state $STATE --corpus", "SC2086"),
        ("run: make setup\n", "run: 'if make setup'\n", "SC1"),
        ("@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2", "@v6", "unpinned-uses"),
        (
            "    permissions:\n      contents: read\n      id-token: write\n",
            "    permissions: write-all\n",
            "excessive-permissions",
        ),
        ("run: make setup\n", "run: make ${{ github.head_ref }}\n", "template-injection"),
    ],
)
def test_broken_workflow_is_detected(broken: str, instead: str, named: str, tmp_path: Path) -> None:
    text = (FOLDER / "retrain.yml").read_text()
    assert broken in text
    # zizmor checks only files in the folder of workflows.
    copy = tmp_path / ".github" / "workflows" / "retrain.yml"
    copy.parent.mkdir(parents=True)
    copy.write_text(text.replace(broken, instead))
    assert named in everything(copy)


@pytest.mark.parametrize(
    ("schema", "name"), [("gitlab-ci", "retrain.gitlab-ci.yml"), ("cloudbuild", "retrain.cloudbuild.yaml")]
)
def test_example_of_retraining_is_valid(schema: str, name: str, tmp_path: Path) -> None:
    path = ROOT / "docs" / "examples" / name
    assert by_schema(schema, path) == ""
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace("entrypoint:", "entripoint:").replace("image: debian", "image: 7 #"))
    assert by_schema(schema, copy) != ""
    script = " ".join(line.split("#")[0] if line.startswith("#") else line for line in path.read_text().splitlines())
    commands = re.findall(r"\.venv/bin/mlgo (retrain \w+)((?: +(?:\\\\ *)?--[\w-]+ +(?:\"[^\"]*\"|[\w./=]+))+)", script)
    assert {command for command, _options in commands} >= {"retrain check"} and len(commands) == 2
    for command, options in commands:
        words = [*command.split(), *shlex.split(options.replace("\\", " ")), "--help"]
        done = run_command("pipelines", *words, cwd=ROOT)
        assert done.stdout.startswith("Usage:"), done.stderr
        documented = set(re.findall(r"--[a-z][\w-]*", done.stdout))
        assert {word for word in words if word.startswith("--")} <= documented


def test_cloud_build_file_is_valid(tmp_path: Path) -> None:
    assert by_schema("cloudbuild", CLOUD_BUILD) == ""
    copy = tmp_path / "cloudbuild.yaml"
    copy.write_text(CLOUD_BUILD.read_text().replace("entrypoint:", "entripoint:"))
    assert "entripoint" in by_schema("cloudbuild", copy)


def test_dependabot_file_is_valid() -> None:
    path = ROOT / ".github" / "dependabot.yml"
    assert by_schema("dependabot", path) == "" and by_zizmor(path) == ""


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").iterdir()), ids=lambda path: path.name)
def test_issue_template_is_valid(path: Path, tmp_path: Path) -> None:
    schema = "github-issue-config" if path.name == "config.yml" else "github-issue-forms"
    assert by_schema(schema, path) == ""
    copy = tmp_path / path.name
    copy.write_text(
        path.read_text().replace("blank_issues_enabled", "blank_isues").replace("type: textarea", "type: text")
    )
    assert by_schema(schema, copy) != ""


def test_links_of_the_security_policy_exist() -> None:
    path = ROOT / ".github" / "SECURITY.md"
    links = re.findall(r"\]\(([^)]+)\)", path.read_text())
    assert links and all((path.parent / link).is_file() for link in links)
