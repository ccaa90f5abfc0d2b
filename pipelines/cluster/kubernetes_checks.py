"""Checks of what a run needs of a Kubernetes cluster: operators, accounts and their rights, quota, nodes.

Only requests that change nothing are sent: API discovery, gets and lists, SubjectAccessReviews (authorization.k8s.io),
dry runs.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ParamSpec

from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION
from kubernetes.utils.quantity import parse_quantity
from urllib3.exceptions import HTTPError

from components.platform.errors import UserError
from components.platform.rayjob.kubernetes import is_header_error, quota_remedy, role_binding, status_message
from components.platform.rayjob.manifest import API_VERSION, rayjob
from components.platform.rayjob.ray_cluster import SERVICE_ACCOUNT
from components.platform.rayjob.spec import S3_VARIABLES, RayJobSpec
from pipelines.cluster.findings import Finding, missing, ok, unknown
from pipelines.cluster.pod_requests import (
    PodRequests,
    Size,
    cluster_pods,
    describe_pods,
    fits,
    format_amount,
    size_of,
    step_pods,
)

TIMEOUT_S = (5.0, 30.0)  # to connect; between two bytes of an answer
_APPLY = "kubectl apply -k k8s/overlays/gke (or plain)"
_WORKLOAD_IDENTITY = "iam.gke.io/gcp-service-account"
_ADMISSION = "mlgo-ray-clusters"
"""Of k8s/base/admission.yaml."""
UNKNOWN_IMAGE = f"mlgo-cluster@sha256:{'0' * 64}"
"""In place of an image that is not built yet: the size of a Ray cluster does not depend on it."""
_OPERATORS = (
    ("argoproj.io", "v1alpha1", "workflows", "Kubeflow Pipelines", "install Kubeflow Pipelines 2.14 or newer"),
    ("ray.io", "v1", "rayjobs", "KubeRay's operator", "install KubeRay's operator 1.6.0 or newer"),
)
"""API group, version, resource; whose it is; remedy."""
_KUBERAY = _OPERATORS[1][4]
_SMALLER_STEPS = "ask for less: mlgo pipeline submit --small, or cpu and memory in --overrides"
_SMALLER_RAY = "lower cpus_per_worker (--ray-cluster-options)"

P = ParamSpec("P")


@dataclass(frozen=True)
class Right:
    """A request that an account sends during a run; see k8s/base/rbac.yaml."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {resource}{f' {self.name}' if self.name else ''}"


_STEP_RIGHTS = (
    Right("create", "argoproj.io", "workflowtaskresults"),
    Right("patch", "argoproj.io", "workflowtaskresults"),
    Right("get", "", "configmaps", name="kfp-launcher"),
)
_LEVEL = "pod-security.kubernetes.io/enforce"
_RESTRICTED_SINCE = (2, 16)
"""The first version of KFP whose steps can be told not to run as root, which the level `restricted` demands."""
_RAYJOB_RIGHTS = (
    Right("create", "ray.io", "rayjobs"),
    Right("get", "ray.io", "rayjobs"),
    Right("delete", "ray.io", "rayjobs"),
    Right("list", "", "pods"),
    Right("get", "", "pods", "log"),
)


class _CannotLook(Exception):
    """The API refuses the request of a check, or does not answer."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


def _or_unknown(check: Callable[P, list[Finding]]) -> Callable[P, list[Finding]]:
    """Let a check return its _CannotLook as a finding."""

    @functools.wraps(check)
    def checked(*arguments: P.args, **named: P.kwargs) -> list[Finding]:
        try:
            return check(*arguments, **named)
        except _CannotLook as error:
            return [error.finding]

    return checked


class Cluster:
    """A Kubernetes cluster and the namespace of the steps.

    Args:
        context: of the kubeconfig; empty for its current one, or in a pod for the pod's cluster.

    Attributes:
        host: URL of the API server.
        custom: the API of custom resources.

    Raises:
        UserError: there is no kubeconfig, or it has no such context.
    """

    def __init__(self, namespace: str, context: str = "") -> None:
        settings = client.Configuration()
        files = [Path(path).expanduser() for path in KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep)]
        try:
            if not context and not any(map(Path.exists, files)) and SERVICE_ACCOUNT.is_dir():
                config.load_incluster_config(client_configuration=settings)
            else:
                config.load_kube_config(context=context or None, client_configuration=settings)
        except (ConfigException, OSError) as error:
            raise UserError(
                f"there is no Kubernetes cluster to check: {error}", "set KUBECONFIG, or pass --context NAME"
            ) from None
        settings.retries = False
        api = client.ApiClient(settings)
        self.namespace, self.host = namespace, settings.host
        self._core, self.custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        self._reviews = client.AuthorizationV1Api(api)

    def at(self, namespace: str) -> Cluster:
        """Return the same cluster with another namespace."""
        other = copy.copy(self)
        other.namespace = namespace
        return other

    def require_answer(self) -> None:
        """Raise UserError if the API server does not answer, or does not accept the credentials."""
        try:
            client.VersionApi(self._core.api_client).get_code(_request_timeout=TIMEOUT_S)
        except ValueError as error:  # the answer is not of the API's shape
            if is_header_error(error):
                raise UserError(
                    f"the token for the Kubernetes API at {self.host} has a character that HTTP does not allow",
                    "write only the token to the file, without a line break",
                ) from None
            raise UserError(
                f"what answers at {self.host} is no Kubernetes API",
                "check the server of the kubeconfig's context: kubectl config view --minify",
            ) from None
        except (ApiException, HTTPError, OSError) as error:
            status = getattr(error, "status", None)
            if status == 403:
                return  # it knows who asks
            cause = f"{status} {status_message(error)}" if isinstance(error, ApiException) and status else str(error)
            raise UserError(
                f"the Kubernetes API at {self.host} does not answer: {cause.splitlines()[0][:300]}",
                "check kubectl get namespaces, and log in again if the credentials have expired",
            ) from None

    def check_operators(self, ray: bool) -> list[Finding]:
        """Check that KFP's and, for Ray clusters, KubeRay's resources are served."""
        return [finding for operator in _OPERATORS[: 2 if ray else 1] for finding in self._check_operator(*operator)]

    def check_steps(self, account: str, secrets: Sequence[str], version: tuple[int, int] | None) -> list[Finding]:
        """Check the namespace of the steps and their service account.

        Args:
            secrets: names of Secrets that KFP's launcher reads as this account.
            version: of KFP, major and minor; None if it is unknown.
        """
        findings = self._check_namespace()
        if findings[0].status == "missing":
            return findings
        findings += self._check_pod_security(version)
        findings += self._check_account(account)
        rights = (*_STEP_RIGHTS, *(Right("get", "", "secrets", name=secret) for secret in secrets))
        return findings + self._check_rights(account, self.namespace, rights)

    def check_secrets(self, names: Sequence[str]) -> list[Finding]:
        """Check that Secrets exist which steps name: a pod waits for one that does not."""
        return [finding for name in names for finding in self._check_secret(name, {})]

    def check_ray(self, spec: RayJobSpec, steps: str, steps_namespace: str) -> list[Finding]:
        """Check the namespace of Ray clusters, their service account, and what the training step may do there.

        Args:
            spec: of the Ray cluster that the training step starts.
            steps: service account of the step, in `steps_namespace`.
        """
        findings = self._check_namespace() if self.namespace != steps_namespace else []
        if findings and findings[0].status == "missing":
            return findings
        findings += self._check_fields(spec)
        findings += self._check_admission(spec)
        findings += self._check_rights(steps, steps_namespace, _RAYJOB_RIGHTS)
        findings += self._check_account(spec.service_account)
        if spec.credentials_secret:
            findings += self._check_secret(spec.credentials_secret, {"key.json": "--from-file key.json=FILE"})
        if spec.s3_credentials_secret:
            keys = {name: f"--from-literal {name}=VALUE" for name in S3_VARIABLES}
            findings += self._check_secret(spec.s3_credentials_secret, keys)
        return findings

    def check_step_nodes(self, spec: Mapping[str, Any]) -> list[Finding]:
        """Check that a node is large enough, and has room now, for each step of a PipelineSpec."""
        return self._check_nodes(step_pods(spec), "each step", _SMALLER_STEPS)

    def too_large_steps(self, spec: Mapping[str, Any]) -> Finding | None:
        """Return what `check_step_nodes` finds wrong; None if it is nothing, or nobody may look."""
        try:
            finding = self._room(step_pods(spec), "each step", _SMALLER_STEPS)
        except _CannotLook:
            return None
        return None if finding.status == "ok" else finding

    def pod(self, name: str) -> dict[str, Any]:
        """Return a pod as the API answers it, {} if it cannot be read."""
        try:
            response = self._core.read_namespaced_pod(
                name, self.namespace, _preload_content=False, _request_timeout=TIMEOUT_S
            )
            document = json.loads(response.data)
        except (ApiException, HTTPError, OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def check_capacity(self, spec: RayJobSpec) -> list[Finding]:
        """Check that quota and nodes have room for the Ray cluster at its largest."""
        pods = cluster_pods(spec)
        return [*self._check_quota(pods), *self._check_nodes(pods, "each pod of the Ray cluster", _SMALLER_RAY)]

    @_or_unknown
    def _check_operator(self, group: str, version: str, resource: str, owner: str, remedy: str) -> list[Finding]:
        what = f"{owner}: {resource}.{group} {version}"
        served = self._ask(what, self.custom.get_api_resources, group, version)
        if served is None or resource not in {entry.name for entry in served.resources}:
            return [missing(f"{what} is not served", remedy)]
        return [ok(what)]

    @_or_unknown
    def _check_namespace(self) -> list[Finding]:
        what = f"namespace {self.namespace}"
        if self._ask(what, self._core.read_namespace, self.namespace) is None:
            return [missing(f"there is no {what}", _APPLY)]
        return [ok(what)]

    @_or_unknown
    def _check_pod_security(self, version: tuple[int, int] | None) -> list[Finding]:
        what = f"Pod Security of {self.namespace}"
        namespace = self._ask(what, self._core.read_namespace, self.namespace)
        level = ((namespace.metadata.labels or {}) if namespace else {}).get(_LEVEL, "")
        if level != "restricted":
            return []
        if version is None:
            return [unknown(f"{what} is restricted, which needs KFP 2.16 or newer", "pass --host URL, to ask KFP")]
        if version < _RESTRICTED_SINCE:
            refused = f"{what} is restricted, which refuses the steps of KFP {'.'.join(map(str, version))}"
            remedy = "upgrade KFP to 2.16 or newer, or run steps in a namespace with the level baseline"
            return [missing(refused, remedy)]
        return [ok(f"{what} is restricted, and KFP can run steps there")]

    @_or_unknown
    def _check_fields(self, spec: RayJobSpec) -> list[Finding]:
        """Check that KubeRay knows the fields that the training step sets: it refuses others."""
        group, version = API_VERSION.split("/")
        what = f"fields of rayjobs.{group}"
        address = ("apiextensions.k8s.io", "v1", "customresourcedefinitions", f"rayjobs.{group}")
        definition = self._ask(what, self.custom.get_cluster_custom_object, *address)
        try:
            (served,) = [entry for entry in definition["spec"]["versions"] if entry["name"] == version]
            schema = served["schema"]["openAPIV3Schema"]
        except (KeyError, TypeError, ValueError):
            return [unknown(f"{what}: there is no definition to be read", _KUBERAY)]
        if lacks := sorted(unknown_fields(rayjob(spec), schema)):
            return [missing(f"KubeRay's operator does not know {', '.join(lacks)} of RayJobs", _KUBERAY)]
        return [ok(f"KubeRay's operator knows the {what} that are set")]

    @_or_unknown
    def _check_admission(self, spec: RayJobSpec) -> list[Finding]:
        """Check by dry runs that the namespace admits the training, and no RayJob of another kind."""
        policy = f"admission policy {_ADMISSION}"
        spec = dataclasses.replace(spec, name=f"check-{secrets.token_hex(4)}")
        forbidden = self._refusal(dataclasses.replace(spec, service_account="default"))
        if forbidden is None:
            return []
        if _ADMISSION not in forbidden:
            text = f"RayJobs in {self.namespace} may use every Secret and account there: no {policy} refuses them"
            return [missing(text, f"{_APPLY}, on Kubernetes 1.30 or newer")]
        refusal = self._refusal(spec)
        if refusal and not (spec.image == UNKNOWN_IMAGE and "cluster_image" in refusal):
            reason = refusal.rpartition("denied request: ")[2]
            return [missing(f"the training is refused: {reason}", "change k8s/base/values.env, and apply it again")]
        return [ok(f"{policy} restricts RayJobs in {self.namespace}")]

    def _refusal(self, spec: RayJobSpec) -> str | None:
        """Return what admission says against a RayJob, "" if nothing; None if the server has no RayJobs.

        _CannotLook if this user may not create any.
        """
        group, version = API_VERSION.split("/")
        try:
            create = self.custom.create_namespaced_custom_object
            address = (group, version, self.namespace, "rayjobs")
            created = self._ask("RayJobs", functools.partial(create, *address, rayjob(spec), dry_run="All"))
        except _CannotLook as error:
            if "denied request" not in error.finding.what:
                raise
            return error.finding.what
        return None if created is None else ""

    @_or_unknown
    def _check_account(self, name: str) -> list[Finding]:
        what = f"service account {name}"
        account = self._ask(what, self._core.read_namespaced_service_account, name, self.namespace)
        if account is None:
            return [missing(f"there is no {what} in {self.namespace}", _APPLY)]
        identity = (account.metadata.annotations or {}).get(_WORKLOAD_IDENTITY, "")
        if "CHANGE-ME" in identity:
            remedy = "set its account in k8s/base/values.env, and apply overlays/gke again"
            return [missing(f"{what} acts as {identity}", remedy)]
        return [ok(f"{what}{f', as {identity}' if identity else ''}")]

    @_or_unknown
    def _check_secret(self, name: str, keys: Mapping[str, str]) -> list[Finding]:
        """Check a Secret. `keys`: what it must have -> option of kubectl that adds it."""
        what = f"Secret {name}"
        create = f"kubectl create secret generic {name} --namespace {self.namespace} {' '.join(keys.values())}"
        secret = self._ask(what, self._core.read_namespaced_secret, name, self.namespace)
        if secret is None:
            return [missing(f"there is no {what} in {self.namespace}", create)]
        lacks = [key for key in keys if key not in (secret.data or {})]
        return [missing(f"{what} has no {' and no '.join(lacks)}", create) if lacks else ok(what)]

    @_or_unknown
    def _check_rights(self, account: str, of: str, rights: Sequence[Right]) -> list[Finding]:
        """Check what a service account of the namespace `of` may do in this one."""
        denied = []
        user = {
            "user": f"system:serviceaccount:{of}:{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{of}"],
        }
        for right in rights:
            asked = {name: value for name, value in dataclasses.asdict(right).items() if value or name == "group"}
            attributes = client.V1ResourceAttributes(namespace=self.namespace, **asked)
            review = client.V1SubjectAccessReview(
                api_version="authorization.k8s.io/v1",
                kind="SubjectAccessReview",
                spec=client.V1SubjectAccessReviewSpec(**user, resource_attributes=attributes),
            )
            reviewed = self._ask(f"rights of {account}", self._reviews.create_subject_access_review, review)
            if reviewed is None or not reviewed.status.allowed:
                denied.append(str(right))
        if denied:
            remedy = _APPLY if of == self.namespace else role_binding(of, account, self.namespace)
            return [missing(f"{account} may not {', '.join(denied)} in {self.namespace}", remedy)]
        return [ok(f"{account} may {', '.join(map(str, rights))} in {self.namespace}")]

    @_or_unknown
    def _check_quota(self, pods: Sequence[PodRequests]) -> list[Finding]:
        quotas = self._ask("quota", self._core.list_namespaced_resource_quota, self.namespace)
        count = sum(pod.count for pod in pods)
        needs: dict[str, Decimal] = {"pods": Decimal(count)}
        for prefix in ("requests.", "limits.", ""):
            needs[f"{prefix}cpu"] = sum((pod.cpus * pod.count for pod in pods), Decimal(0))
            needs[f"{prefix}memory"] = sum((pod.memory_bytes * pod.count for pod in pods), Decimal(0))
        short = []
        for quota in quotas.items if quotas else ():
            hard, used = quota.status.hard or {}, quota.status.used or {}
            for name in needs.keys() & hard.keys():
                left = parse_quantity(hard[name]) - parse_quantity(used.get(name, "0"))
                if left < needs[name]:
                    short.append(
                        f"{quota.metadata.name} leaves {format_amount(left)} {name} of {format_amount(needs[name])}"
                    )
        if short:
            text = f"the largest Ray cluster does not fit: {'; '.join(sorted(short))}"
            return [missing(text, "raise the quota, or use fewer workers: --workers N")]
        return [ok(f"quota of {self.namespace} has room for the {count} pods of the largest Ray cluster")]

    @_or_unknown
    def _check_nodes(self, pods: Sequence[PodRequests], what: str, smaller: str) -> list[Finding]:
        return [self._room(pods, what, smaller)]

    def _room(self, pods: Sequence[PodRequests], what: str, smaller: str) -> Finding:
        response = self._ask("nodes", self._core.list_node)
        sizes = {
            node.metadata.name: size_of(node.status.allocatable)
            for node in response.items
            if not node.spec.unschedulable
        }
        too_large = [pod for pod in pods if not fits(pod, sizes.values())]
        if too_large:
            return unknown(
                f"none of {len(sizes)} nodes is large enough for {describe_pods(too_large)}",
                f"check that an autoscaled node pool has such nodes, or {smaller}",
            )
        try:
            free = self._free(sizes)
        except _CannotLook:  # listing the pods of all namespaces is a right that few have
            free = sizes
        if waiting := [pod for pod in pods if not fits(pod, free.values())]:
            return unknown(
                f"no node has room now for {describe_pods(waiting)}, because of the pods on it",
                f"wait for them to end, check that an autoscaler adds nodes, or {smaller}",
            )
        return ok(f"{len(sizes)} nodes, large enough for {what}")

    def _free(self, sizes: Mapping[str, Size]) -> dict[str, Size]:
        """Return what the requests of pods leave of each node."""
        response = self._ask("pods", self._core.list_pod_for_all_namespaces)
        free = dict(sizes)
        for pod in response.items if response else ():
            if pod.spec.node_name in free and pod.status.phase not in ("Succeeded", "Failed"):
                for container in pod.spec.containers:
                    free[pod.spec.node_name] -= size_of(container.resources and container.resources.requests)
        return free

    def _ask(self, what: str, request: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer, None if the thing does not exist; raise _CannotLook if nobody can tell."""
        try:
            return request(*arguments, _request_timeout=TIMEOUT_S)
        except ApiException as error:
            if error.status == 404:
                return None
            cause = f"{error.status} {status_message(error)}" if error.status else str(error.reason)
            if remedy := quota_remedy(cause):
                raise _CannotLook(missing(f"{what}: {cause}", remedy)) from None
        except (HTTPError, OSError, ValueError) as error:  # ValueError: the answer is not of the API's shape
            cause = "the token has a character that HTTP does not allow" if is_header_error(error) else str(error)
        raise _CannotLook(unknown(f"{what}: {' '.join(cause.split())[:400]}", "ask somebody who may look"))


def unknown_fields(value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of fields that a schema of Kubernetes (a structural one) does not have."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, list):
        for item in value:
            yield from unknown_fields(item, schema.get("items") or {}, path)
    elif isinstance(value, dict) and "properties" in schema:
        for key, item in value.items():
            field_path = f"{path}.{key}" if path else key
            if key in schema["properties"]:
                yield from unknown_fields(item, schema["properties"][key], field_path)
            else:
                yield field_path
