"""Tests that run the commands of the workflows and of Cloud Build unchanged, where that needs no registry.

tests/end_to_end/test_retraining.py runs `mlgo retrain run`, which is a whole training.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from components.platform.storage import publish
from components.platform.storage.uri import mirror, parse_location
from pipelines.cli.retrain import _installed
from pipelines.cli.submit import submit_command
from pipelines.images import BASES, ON_IMAGE
from pipelines.retrain.artifacts import module_checksums
from pipelines.retrain.state import Deployed, load_state, save_state
from pipelines.spec import COMPILED_PIPELINES
from tests.support.buckets import local_bucket
from tests.support.workflows import FOLDER, ROOT, WORKFLOWS, Runner, Step, filled, holds, load, steps

BUCKET = "mlgo-workflow"
VALUES = {
    "matrix.marker": "unit",
    "vars.MLGO_STATE": f"gs://{BUCKET}/retrain.json",
    "vars.MLGO_CORPUS": f"gs://{BUCKET}/corpus",
    "vars.MLGO_RUNS": f"gs://{BUCKET}/runs",
    "vars.MLGO_SERVER": "",
    "inputs.reason": "",
    "inputs.preset": "",
    "inputs.train_minutes": "",
    "github.ref": "refs/heads/main",
}
CHECKED = {
    ".ci/audit",
    ".ci/build-wheel",
    ".ci/move-credentials",
    ".ci/release-notes",
    ".ci/run",
    ".ci/with-kind",
    ".venv/bin/mlgo",
    "apt-get",
    "docker",
    "docker/requirements/pin-images",
    "echo",
    "gh",
    "git",
    "make",
}
"""The programs of the workflows. Before a new one is added here, a test parent must check its arguments."""


def scripts() -> Iterator[Step]:
    for name in WORKFLOWS:
        yield from (step for step in steps(load(FOLDER / name)) if step.script)


def commands(script: str) -> list[list[str]]:
    """Return the words of each simple command, of groups in braces too."""
    lines = (re.sub(r"^\s*[{}]( *>.*)?", "", command) for command in re.split(r"&&|\n", script))
    return [shlex.split(line) for line in lines if line.strip()]


def step_that_says(workflow: str, text: str) -> Step:
    (step,) = [step for step in steps(load(FOLDER / workflow)) if text in step.script]
    return step


def test_workflows_call_only_checked_programs() -> None:
    called = {command[0] for step in scripts() for command in commands(step.script)}
    assert called - {"{", "}"} == CHECKED


def test_make_has_targets_of_workflows() -> None:
    targets = {
        word
        for step in scripts()
        for words in commands(step.script)
        if words[0] == "make"
        for word in words[1:]
        if "=" not in word
    }
    targets |= set(re.findall(r"^exec make (\S+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
    assert targets == {"setup", "setup-pipelines", "test"}
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, timeout=60)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_workflows_install_requirements_before_checkout() -> None:
    """Debian's image has neither git nor make: the workflow installs what .ci/run looks for before the checkout."""
    needed = re.search(r"for program in (.*?);", (ROOT / ".ci" / "run").read_text())
    assert needed
    for step in scripts():
        if "apt-get" in step.script:
            assert set(needed[1].split()) <= {word.partition("=")[0] for word in step.script.split()}
    for name in WORKFLOWS:
        for job in load(FOLDER / name)["jobs"].values():
            if "container" in job:
                assert "apt-get" in job["steps"][0]["run"]


def test_git_trusts_checkout_of_another_owner(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "checkout"], cwd=tmp_path, check=True)
    variables = {"HOME": str(tmp_path), "GITHUB_WORKSPACE": str(tmp_path / "checkout")}
    variables["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"  # git's own tests use it
    command = ["git", "-C", str(tmp_path / "checkout"), "status"]
    before = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert "dubious ownership" in before.stderr
    for workflow in ("test.yml", "retrain.yml"):
        (tmp_path / ".gitconfig").unlink(missing_ok=True)
        (tmp_path / workflow).mkdir()
        Runner(tmp_path / workflow, VALUES, variables).run(step_that_says(workflow, "safe.directory"))
        subprocess.run(command, env=os.environ | variables, capture_output=True, check=True)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve the bucket of VALUES, with a corpus of three modules, to this process and its children."""
    with local_bucket(BUCKET, monkeypatch, tmp_path / "cache"):
        corpus = parse_location(VALUES["vars.MLGO_CORPUS"])
        assert not isinstance(corpus, Path)
        with publish(mirror(corpus), "corpus") as directory:
            for name in "abc":
                (directory / f"{name}.bc").write_text(f"bitcode of {name}")
        yield


def test_check_decides_whether_retrain_job_runs(storage: None, tmp_path: Path) -> None:
    workflow = load(FOLDER / "retrain.yml")
    where = ("retrain", "submit")
    check, train = workflow["jobs"]["check"], workflow["jobs"]["retrain"]
    assert holds(check["if"], VALUES) and not holds(check["if"], VALUES | {"vars.MLGO_STATE": ""})
    assert not holds(check["if"], VALUES | {"github.ref": "refs/heads/other"})
    assert {workflow["jobs"][job]["environment"] for job in ("check", *where)} == {"retraining"}
    step = step_that_says("retrain.yml", "mlgo retrain check")
    (tmp_path / "runner").mkdir()
    runner = Runner(tmp_path / "runner", VALUES, {})

    def trains() -> tuple[str, bool]:
        said, step_outputs = runner.run(step)
        values = {f"steps.{step.content['id']}.outputs.{name}": value for name, value in step_outputs.items()}
        outputs = {f"needs.check.outputs.{name}": filled(text, values) for name, text in check["outputs"].items()}
        for server in ("", "--vertex=p/r"):
            jobs = {job: holds(workflow["jobs"][job]["if"], outputs | {"vars.MLGO_SERVER": server}) for job in where}
            assert jobs == {"retrain": jobs["retrain"] and not server, "submit": jobs["submit"] and bool(server)}
        return said, holds(train["if"], outputs | VALUES)

    said, yes = trains()
    assert yes and "retrain: nothing is deployed yet" in said
    deployed = Deployed(
        policy=f"gs://{BUCKET}/runs/1/policy",
        policy_digest="d",
        problem="inlining",
        llvm_version=_installed(19)[0],
        features=("a",),
        modules=module_checksums(VALUES["vars.MLGO_CORPUS"]),
        reduction_percent=3.0,
        ci95=None,
        promoted_at=time.time(),
    )
    state_path = VALUES["vars.MLGO_STATE"]
    save_state(state_path, load_state(state_path).promoted(deployed))
    said, yes = trains()
    assert not yes and "no reason to retrain" in said
    (tmp_path / "asked").mkdir()
    runner = Runner(tmp_path / "asked", VALUES | {"inputs.reason": "clang's $(flags) changed"}, {})
    said, yes = trains()
    assert yes and "retrain: clang's $(flags) changed" in said


def test_credentials_leave_the_checkout(tmp_path: Path) -> None:
    (tmp_path / ".ci").symlink_to(ROOT / ".ci")
    key = tmp_path / "gha-creds-1.json"
    key.write_text("secret")
    values = VALUES | {"steps.auth.outputs.credentials_file_path": str(key)}
    Runner(tmp_path, values, {"GITHUB_ENV": str(tmp_path / "env")}).run(step_that_says("retrain.yml", "move-cred"))
    name, _, moved = (tmp_path / "env").read_text().strip().partition("=")
    assert name == "GOOGLE_APPLICATION_CREDENTIALS" and Path(moved).read_text() == "secret" and not key.exists()
    assert Path(moved).parent.stat().st_mode & 0o077 == 0 and tmp_path not in Path(moved).parents
    shutil.rmtree(Path(moved).parent)


def test_audit_reads_every_lock_and_fails_for_one(tmp_path: Path) -> None:
    """pip-audit is a stand-in that finds something in one lock: OSV is asked by the workflow only."""
    for name in ("pipx", "pip-audit"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$@" >>"$CALLS"\ncase $* in *ray.txt) exit 1; esac\n')
        (tmp_path / name).chmod(0o755)
    variables = {"CALLS": str(tmp_path / "calls"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([ROOT / ".ci" / "audit"], env=os.environ | variables, check=False, timeout=60)
    assert done.returncode == 1
    install, *audits = (tmp_path / "calls").read_text().splitlines()
    assert re.fullmatch(r"install --quiet pip-audit==[\d.]+", install)
    locks = {
        f"docker/requirements/{p.name}"
        for p in (ROOT / "docker/requirements").glob("*.txt")
        if "--hash=" in p.read_text()
    }
    assert {line.rpartition(" ")[2] for line in audits} == locks and len(audits) == len(locks) > 5


@pytest.mark.parametrize("server", ["--vertex=p/r", "--host=http://kfp"])
def test_server_is_tried_before_a_retraining_is_submitted(server: str) -> None:
    job = load(FOLDER / "retrain.yml")["jobs"]["submit"]
    scripts = [step["run"] for step in job["steps"] if " submit " in step.get("run", "")]
    smoke, waits, told = (commands(script.replace("$SERVER", server))[0][1:] for script in scripts)
    assert smoke[:2] == ["pipeline", "submit"] and waits[:2] == told[:2] == ["retrain", "submit"]
    assert waits[:-1] == told[:-2] and (waits[-1], told[-2]) == ("--wait", "--commit-secret")
    conditions = [step["if"] for step in job["steps"] if "retrain submit" in step.get("run", "")]
    for secret, runs in (("", [True, False]), ("mlgo-commit", [False, True])):
        assert [holds(condition, {"vars.MLGO_COMMIT_SECRET": secret}) for condition in conditions] == runs
    context = submit_command.make_context("submit", smoke[2:])
    assert context.params["pipeline"] == COMPILED_PIPELINES["smoke"] and context.params["wait"]
    assert context.params["vertex" if "vertex" in server else "host"] == server.partition("=")[2]


def write_release(directory: Path, version: str) -> None:
    """Write what a release is made of: the version and its section in a changelog."""
    shutil.copytree(ROOT / ".ci", directory / ".ci")
    (directory / "pyproject.toml").write_text(f'[project]\nname = "p"\nversion = "{version}"\n')
    (directory / "docs").mkdir()
    sections = (
        "## [Unreleased]\n\n- C\n\n## [1.2.0] - 2026-01-01\n\n### Added\n\n- B\n\n## [1.1.0] - 2025-01-01\n\n- A\n"
    )
    (directory / "docs" / "CHANGELOG.md").write_text(f"# Changelog\n\n{sections}")


def test_release_tags_the_commit_and_publishes_the_version_s_section_and_the_wheel(tmp_path: Path) -> None:
    """gh is a stand-in that records its arguments, build-wheel one that writes a file: no server of GitHub is here."""
    write_release(tmp_path, "1.2.0")
    (tmp_path / ".ci" / "build-wheel").write_text('#!/bin/sh\nmkdir "$1" && touch "$1/p-1.2.0-py3-none-any.whl"\n')
    (tmp_path / "gh").write_text('#!/bin/sh\nprintf "%s|" "$@" >>calls; echo >>calls\n')
    (tmp_path / "gh").chmod(0o755)
    github = {"GITHUB_REPOSITORY": "o/r", "GITHUB_SHA": "abc", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    values = {"github.token": "t"}
    for step in steps(load(FOLDER / "release.yml")):
        if step.script:
            _said, outputs = Runner(tmp_path, values, github).run(step)
            values |= {f"steps.{step.content.get('id')}.outputs.{name}": text for name, text in outputs.items()}
            (tmp_path / ".venv").unlink()
    assert (tmp_path / "notes.md").read_text().split() == ["###", "Added", "-", "B"]
    assert (tmp_path / "calls").read_text().splitlines() == [
        "api|repos/o/r/git/refs|-f|ref=refs/tags/v1.2.0|-f|sha=abc|",
        "release|create|v1.2.0|dist/p-1.2.0-py3-none-any.whl|docker/requirements/steps.txt|--repo|o/r|--verify-tag|--title|v1.2.0|--notes-file|notes.md|",
        "workflow|run|images.yml|--repo|o/r|--ref|v1.2.0|",
    ]


def test_version_without_a_dated_section_is_not_released(tmp_path: Path) -> None:
    write_release(tmp_path, "1.3.0")
    done = subprocess.run([tmp_path / ".ci" / "release-notes"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "") and "1.3.0" in done.stderr and "remedy: " in done.stderr


def test_image_has_valid_name_version_and_time_of_its_commit(tmp_path: Path) -> None:
    write_release(tmp_path, "1.2.0")
    step = step_that_says("images.yml", "GITHUB_REPOSITORY_OWNER")
    variables = {
        "GITHUB_REPOSITORY_OWNER": "Some-Owner",
        "GIT_DIR": git_directory(),
        "GITHUB_REF": "refs/heads/main",
    }
    _said, step_outputs = Runner(tmp_path, {}, variables).run(step)
    assert step_outputs["prefix"] == "ghcr.io/some-owner/mlgo-" and step_outputs["version"] == "1.2.0"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", step_outputs["created"])
    assert int(step_outputs["epoch"]) == datetime.fromisoformat(step_outputs["created"]).timestamp()


@pytest.mark.parametrize(
    ("ref", "released"),
    [
        ("refs/tags/v1.2.0", "1.2.0"),
        ("refs/tags/v1.1.0", ""),
        ("refs/heads/main", ""),
        ("refs/heads/v1.2.0", ""),
    ],
)
def test_only_a_run_for_the_tag_of_the_version_pushes_images_with_it(ref: str, released: str, tmp_path: Path) -> None:
    write_release(tmp_path, "1.2.0")
    step = step_that_says("images.yml", "GITHUB_REPOSITORY_OWNER")
    variables = {"GITHUB_REPOSITORY_OWNER": "owner", "GIT_DIR": git_directory(), "GITHUB_REF": ref}
    _said, step_outputs = Runner(tmp_path, {}, variables).run(step)
    assert step_outputs["released"] == released
    job = load(FOLDER / "images.yml")["jobs"]["images"]
    (build,) = [step["with"] for step in job["steps"] if step.get("id") == "build"]
    by_commit, by_version = build["tags"].splitlines()
    assert by_commit.endswith(":${{ github.sha }}")
    assert by_version.startswith("${{ steps.facts.outputs.released && ") and "outputs.version" not in build["tags"]


def git_directory() -> str:
    command = ["git", "rev-parse", "--absolute-git-dir"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def test_images_match_dockerfiles_and_their_build_arguments() -> None:
    job = load(FOLDER / "images.yml")["jobs"]["images"]
    (build,) = [step["with"] for step in job["steps"] if step.get("id") == "build"]
    assert set(job["strategy"]["matrix"]["image"]) == set(BASES)
    *lines, sdk, cluster = build["build-args"].splitlines()
    passed = {line.partition("=")[0] for line in lines}
    assert sdk.startswith("${{ contains('sdk clang', matrix.image) && format('TOOLCHAIN={0}toolchain:{1}', ")
    assert cluster.startswith("${{ matrix.image == 'cluster' && format('TRAINING={0}training:{1}', ")
    for image in BASES:
        text = (ROOT / filled(build["file"], {"matrix.image": image})).read_text()
        parent = {ON_IMAGE[image].upper()} if image in ON_IMAGE else set()
        assert passed | parent == set(re.findall(r"^ARG (\w+)", text, re.MULTILINE)) - {"BASE", "BUILDER"}


def test_image_is_built_after_its_parent() -> None:
    strategy = load(FOLDER / "images.yml")["jobs"]["images"]["strategy"]
    order = strategy["matrix"]["image"]
    assert int(strategy["max-parallel"]) == 1
    assert all(order.index(parent) < order.index(image) for image, parent in ON_IMAGE.items())


def test_commands_of_cloud_build_are_valid(tmp_path: Path) -> None:
    path = ROOT / "docker" / "cloudbuild.yaml"
    (step,) = load(path)["steps"]
    flags, script = step["args"]
    subprocess.run(["bash", flags.replace("c", "nc"), script], check=True, timeout=60)
    # Cloud Build replaces every $NAME before bash runs the script.
    used = set(re.findall(r"\$\{?(\w+)", path.read_text().partition("steps:")[2]))
    assert used == {"COMMIT_SHA", "PROJECT_ID", "_REGISTRY"}
    variables = {
        "_REGISTRY": "europe-docker.pkg.dev/project/mlgo",
        "PATH": f"{tmp_path}/.venv/bin:{os.environ['PATH']}",
    }
    runner = Runner(tmp_path, {}, variables)
    seen = set()
    for words in commands(script):
        for lock in words[words.index("-r") + 1 :] if "-r" in words else ():
            assert (ROOT / lock).is_file()
        if words[0] == "mlgo":
            seen.add(" ".join(words[1:3]))
            # --help prints only after all other options are parsed.
            said, _outputs = runner.run(Step("", {"run": shlex.join(words) + " --help"}, {}))
            assert said.startswith(f"Usage: mlgo images {words[2]}")
    assert seen == {"images build", "images push"}
