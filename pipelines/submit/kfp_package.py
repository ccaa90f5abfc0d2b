"""A pipeline as a KFP server gets it: the PipelineSpec with what the options change, and settings of pods."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from components.platform.errors import UserError
from components.platform.launcher import commit_status
from components.platform.launcher.images import CLANG
from components.platform.launcher.notify import NOTIFY_SECRET_VARIABLE, NOTIFY_VARIABLE, PAGES_VARIABLE
from components.platform.launcher.registry import TASKS
from components.platform.rayjob.manifest import RUN_LABEL
from components.platform.rayjob.spec import SUBDOMAIN
from components.platform.rayjob.step_lease import RUN_VARIABLE
from pipelines.spec import containers, expect_pipeline, ray_image
from pipelines.spec_changes import with_given_digests, without_cache
from pipelines.submit.artifacts.root import with_artifact_root
from pipelines.submit.options import Package, SubmitOptions
from pipelines.submit.overrides import override_for_kfp, with_small_requests
from pipelines.submit.overrides_document import LABEL_KEY, LABEL_VALUE

NOTIFY_KEY = "url"
"""Key of the webhook's URL in the Secret that --notify-secret names."""
TOKEN_KEY = "token"
"""Key of the token in the Secret that --commit-secret names."""
_EXECUTOR = "exec-"
"""What kfp puts before a component's name."""
_USER = {"runAsUser": 1000}
_RESERVED_LABELS = ("kubernetes.io", "k8s.io", "argoproj.io", "kubeflow.org")
"""Prefixes of labels that Kubernetes, Argo and KFP set themselves (KFP also `pipeline/runid`)."""


def package_for_kfp(options: SubmitOptions, ray: bool | None, pages: str) -> Package:
    """Return the pipeline with digests of images and what else the options change.

    Args:
        ray: whether a step starts a Ray cluster; None if that is unknown.
        pages: the URL to which the ID of a run is appended for its page.

    Raises:
        UserError: an image was not pushed, or the pipeline does not have what an option asks for.
    """
    spec = with_given_digests(options.spec, options.images, ray)
    if not options.cache:
        spec = without_cache(spec)
    if options.artifact_root:
        spec = with_artifact_root(spec, options.artifact_root)
    if options.small:
        spec = with_small_requests(spec)
    spec, pods = override_for_kfp(spec, options.overrides)
    notified: dict[str, Any] = {}
    if options.notify_secret:
        spec, notified = notify_settings(spec, options.notify_secret, pages)
    spec, status = commit_settings(spec, options, pages)
    labels = pod_labels(spec, options.labels)
    settings = (security_settings(spec), pods, notified, status, run_id_settings(spec), labels)
    return Package(spec, platform_spec(*settings, pipeline=workflow_limits(options)))


@expect_pipeline
def notify_settings(spec: Mapping[str, Any], secret: str, pages: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a copy of a PipelineSpec whose last step knows the Secret with the webhook's URL, and settings for
    `platform_spec` that pass the URL to it.

    Args:
        secret: name of a Kubernetes Secret with the key NOTIFY_KEY, in the namespace of the steps.

    Raises:
        UserError: `secret` is not a valid name of a Secret, or the pipeline has no such step.
    """
    if not SUBDOMAIN.fullmatch(secret):
        # Do not print its value: if a URL was passed by mistake, it is the secret itself.
        raise UserError(
            "--notify-secret is not the name of a Kubernetes Secret",
            f"kubectl create secret generic mlgo-notify --from-file {NOTIFY_KEY}=FILE, and --notify-secret mlgo-notify",
        )
    variables = {NOTIFY_SECRET_VARIABLE: secret, PAGES_VARIABLE: pages}
    return _finish_settings(spec, variables, secret, {NOTIFY_KEY: NOTIFY_VARIABLE}, "--notify-secret")


@expect_pipeline
def commit_settings(
    spec: Mapping[str, Any], options: SubmitOptions, pages: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a copy of a PipelineSpec whose last step sets the status of the commit that the options or CI name, and
    settings for `platform_spec` that pass the token to it.

    Raises:
        UserError: an option is invalid or misses another one, or the pipeline has no such step.
    """
    secret = options.commit_secret
    if not secret and not options.commit:
        return dict(spec), {}
    if not SUBDOMAIN.fullmatch(secret):  # not printed: it may be the token itself
        problem = "--commit-secret is not the name of a Kubernetes Secret" if secret else "--commit needs a token"
        remedy = (
            f"kubectl create secret generic mlgo-commit --from-file {TOKEN_KEY}=FILE, and --commit-secret mlgo-commit"
        )
        raise UserError(problem, remedy)
    commit = options.commit or commit_status.commit_of_ci()
    if not commit:
        problem = "--commit-secret: no commit is known, as this is no job of GitHub Actions or GitLab CI/CD"
        raise UserError(problem, f"pass --commit {commit_status.EXAMPLES}")
    commit_status.require_commit(commit)
    variables = {
        commit_status.COMMIT_VARIABLE: commit,
        commit_status.CONTEXT_VARIABLE: options.experiment_name,
        commit_status.SECRET_VARIABLE: secret,
        PAGES_VARIABLE: pages,
    }
    return _finish_settings(spec, variables, secret, {TOKEN_KEY: commit_status.TOKEN_VARIABLE}, "--commit-secret")


def _finish_settings(
    spec: Mapping[str, Any], variables: Mapping[str, str], secret: str, keys: Mapping[str, str], option: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a copy of a PipelineSpec with variables in its last step, and settings that pass a Secret to it.

    Args:
        keys: key of the Secret -> variable.

    Raises:
        UserError: the pipeline has no such step.
    """
    finishing = [label for label, container in containers(spec) if "pipelines.finish" in container.get("command", ())]
    if not finishing:
        raise UserError("no step of the pipeline reports how it ended", f"leave {option} out")
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for label in finishing:
        container = copy["deploymentSpec"]["executors"][label]["container"]
        others = [entry for entry in container.get("env", ()) if entry["name"] not in variables]
        container["env"] = others + [{"name": name, "value": value} for name, value in variables.items()]
    entry = {
        "secretName": secret,  # deprecated, for older servers, as kfp-kubernetes writes it
        "secretNameParameter": {"runtimeValue": {"constant": secret}},
        "keyToEnv": [{"secretKey": key, "envVar": variable} for key, variable in keys.items()],
        "optional": True,  # otherwise the pod waits for a Secret that does not exist, and the run has no end
    }
    return copy, {label: {"secretAsEnv": [entry]} for label in finishing}


@expect_pipeline
def security_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for `platform_spec` with which steps may run where Pod Security is `restricted`.

    KFP gives the pods of steps everything else that it needs, but lets images decide on the user. Ours have a user
    (docker/*/Dockerfile); its number is left out, because OpenShift assigns another one. The image `clang` begins as
    root, to become the owner of a mounted directory, so its steps get a number.
    """
    as_root = {f"{_EXECUTOR}{name}" for name, task in TASKS.items() if task.image == CLANG}
    return {
        label: {"securityContext": {"runAsNonRoot": True, **(_USER if label in as_root else {})}}
        for label, container in containers(spec)
        if re.match("python -m (components|pipelines)[.]", " ".join(container.get("command", ())))
    }


@expect_pipeline
def run_id_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for `platform_spec` that tell the ID of the run to a step that may start a Ray cluster."""
    field = {"name": RUN_VARIABLE, "fieldPath": f"metadata.labels['{RUN_LABEL}']"}
    return {label: {"fieldPathAsEnv": [field]} for label, container in containers(spec) if ray_image(container)}


@expect_pipeline
def pod_labels(spec: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return settings for `platform_spec` that label the pods of all steps.

    Raises:
        UserError: one is no label of Kubernetes, or belongs to Kubernetes, Argo or KFP.
    """
    for key, value in labels.items():
        prefix = key.rpartition("/")[0]
        if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            raise UserError(f"--label {key}={value} is no label of Kubernetes", "for example --label team=compilers")
        if prefix == "pipeline" or any(f".{prefix}".endswith(f".{domain}") for domain in _RESERVED_LABELS):
            raise UserError(f"--label {key}: labels of {prefix} are not for users", "choose another prefix, or none")
    if not labels:
        return {}
    metadata = {"podMetadata": {"labels": dict(labels)}}
    return {label: metadata for label, _container in containers(spec)}


def workflow_limits(options: SubmitOptions) -> dict[str, int]:
    """Return KFP's PipelineConfig with the limits of a run's workflow that the options ask for."""
    hours = {"resourceTtlOnCompletion": options.ttl_hours, "activeDeadlineSeconds": options.deadline_hours}
    return {field: 3600 * limit for field, limit in hours.items() if limit}


def platform_spec(
    *settings: Mapping[str, Mapping[str, Any]], pipeline: Mapping[str, int] | None = None
) -> dict[str, Any] | None:
    """Return KFP's PlatformSpec for Kubernetes, None if there are no settings.

    Args:
        settings: executor label -> fields of a KubernetesExecutorConfig of kfp-kubernetes
            (kubernetes_executor_config.proto). Lists of the same executor's same field are joined; no two have another
            field of it.
        pipeline: PipelineConfig (pipeline_spec.proto).
    """
    executors: dict[str, dict[str, Any]] = {}
    for setting in settings:
        for label, config in setting.items():
            merged = executors.setdefault(label, {})
            for field, value in config.items():
                merged[field] = [*merged.get(field, ()), *value] if isinstance(value, list) else value
    kubernetes: dict[str, Any] = {"deploymentSpec": {"executors": executors}} if executors else {}
    if pipeline:
        kubernetes["pipelineConfig"] = dict(pipeline)
    return {"platforms": {"kubernetes": kubernetes}} if kubernetes else None
