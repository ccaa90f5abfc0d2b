"""Tests of a pipeline as a KFP server gets it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from components.platform.errors import UserError
from components.platform.launcher import commit_status
from components.platform.launcher.images import CLANG
from components.platform.launcher.notify import NOTIFY_SECRET_VARIABLE, NOTIFY_VARIABLE, PAGES_VARIABLE
from pipelines.spec import COMPILED, COMPILED_PIPELINES, load_spec, used_images
from pipelines.submit.kfp_package import commit_settings, notify_settings, platform_spec, security_settings
from pipelines.submit.options import SubmitOptions

DOCKER = Path(__file__).parents[3] / "docker"


def test_only_exit_handler_gets_webhook_secret() -> None:
    spec, pods = notify_settings(load_spec(COMPILED), "mlgo-notify", "")
    ((label, config),) = pods.items()
    assert label == "exec-finish"
    (secret,) = config["secretAsEnv"]
    assert secret["secretName"] == "mlgo-notify"
    assert secret["optional"], "a pod waits for a Secret that is missing, without an end"
    told = {label: "mlgo-notify" in str(executor) for label, executor in spec["deploymentSpec"]["executors"].items()}
    assert [label for label, named in told.items() if named] == ["exec-finish"]
    assert secret["keyToEnv"] == [{"secretKey": "url", "envVar": NOTIFY_VARIABLE}]
    assert "notify" not in COMPILED.read_text(), "no parameter, which the server would store and show"


@pytest.mark.parametrize("secret", ["https://hooks.example.com/s3cret", "Mlgo", "a" * 254])
def test_invalid_secret_name_is_refused_without_printing_it(secret: str) -> None:
    with pytest.raises(UserError, match="is not the name of a Kubernetes Secret") as error:
        notify_settings(load_spec(COMPILED), secret, "")
    assert secret not in str(error.value) and "kubectl create secret" in error.value.remedy


def test_notify_secret_without_exit_handler_is_refused() -> None:
    spec = load_spec(COMPILED)
    del spec["deploymentSpec"]["executors"]["exec-finish"]
    with pytest.raises(UserError, match="no step of the pipeline reports"):
        notify_settings(spec, "mlgo-notify", "")


def options(**more: Any) -> SubmitOptions:
    return SubmitOptions(load_spec(COMPILED), experiment="sizes", **more)


COMMIT = "https://api.github.com/repos/octo/hello/commits/" + "a" * 40


def test_commit_is_told_to_the_last_step_next_to_the_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a job of GitHub Actions submits it."""
    variables = ("https://api.github.com", "octo/hello", "a" * 40)
    for name, value in zip(("GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_SHA"), variables, strict=True):
        monkeypatch.setenv(name, value)
    pages = "https://kfp/#/runs/details/"
    spec, notified = notify_settings(load_spec(COMPILED), "mlgo-notify", pages)
    spec, status = commit_settings(spec, options(commit_secret="mlgo-commit"), pages)
    environment = spec["deploymentSpec"]["executors"]["exec-finish"]["container"]["env"]
    assert {entry["name"]: entry["value"] for entry in environment} == {
        NOTIFY_SECRET_VARIABLE: "mlgo-notify",
        PAGES_VARIABLE: pages,
        commit_status.COMMIT_VARIABLE: COMMIT,
        commit_status.CONTEXT_VARIABLE: "sizes",
        commit_status.SECRET_VARIABLE: "mlgo-commit",
    }
    assert len(environment) == 5, "each once"
    settings = platform_spec(notified, status)
    assert settings is not None
    (executor,) = settings["platforms"]["kubernetes"]["deploymentSpec"]["executors"].items()
    assert executor[0] == "exec-finish"
    first, second = executor[1]["secretAsEnv"]
    assert first["secretName"] == "mlgo-notify" and second["secretName"] == "mlgo-commit" and second["optional"]
    assert second["keyToEnv"] == [{"secretKey": "token", "envVar": commit_status.TOKEN_VARIABLE}]


@pytest.mark.parametrize(
    ("more", "problem", "remedy"),
    [
        ({"commit": COMMIT}, "--commit needs a token", "--commit-secret mlgo-commit"),
        ({"commit_secret": "ghp_s3cret"}, "is not the name of a Kubernetes Secret", "kubectl create secret"),
        ({"commit_secret": "s"}, "no commit is known", "pass --commit https://api.github.com/repos"),
        ({"commit_secret": "s", "commit": "main"}, "--commit 'main' is no commit in GitHub's", "for example https://"),
    ],
)
def test_commit_that_cannot_get_a_status_is_refused(
    more: dict[str, str], problem: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError) as refused:
        commit_settings(load_spec(COMPILED), options(**more), "")
    assert problem in refused.value.problem and remedy in refused.value.remedy and "s3cret" not in str(refused.value)


def test_settings_of_one_step_are_merged() -> None:
    merged = platform_spec(
        {"exec-finish": {"tolerations": [], "secretAsEnv": [{"secretName": "a"}]}},
        {"exec-finish": {"secretAsEnv": [{"secretName": "b"}]}},
    )
    assert merged is not None
    executors = merged["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    secrets = [{"secretName": "a"}, {"secretName": "b"}]
    assert executors == {"exec-finish": {"tolerations": [], "secretAsEnv": secrets}}
    assert platform_spec({}, {}) is None


@pytest.mark.parametrize("pipeline", COMPILED_PIPELINES.values(), ids=list(COMPILED_PIPELINES))
def test_steps_run_where_pod_security_is_restricted(pipeline: Path) -> None:
    """KFP sets everything else that the level asks for (backend/src/v2/compiler/argocompiler/security_context.go)."""
    spec = load_spec(pipeline)
    pods = security_settings(spec)
    assert set(pods) == set(spec["deploymentSpec"]["executors"])
    shrink = {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000}}
    assert pods.pop("exec-shrink", shrink) == shrink, "its image begins as root"
    assert all(pod == {"securityContext": {"runAsNonRoot": True}} for pod in pods.values())
    for key in {*used_images(spec)} - {CLANG}:
        dockerfile = (DOCKER / key / "Dockerfile").read_text()
        users = re.findall(r"^USER (.+)$", dockerfile, re.MULTILINE) or ["1000:1000 of the image toolchain"]
        assert users[-1].startswith("1000:1000"), "kubelet refuses a user that is a name"


def test_image_of_others_decides_on_its_user() -> None:
    spec = load_spec(COMPILED)
    spec["deploymentSpec"]["executors"]["exec-other"] = {"container": {"image": "debian", "command": ["sleep"]}}
    assert "exec-other" not in security_settings(spec)
