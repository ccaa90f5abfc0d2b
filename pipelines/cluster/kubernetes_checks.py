"""Checks of what a run needs of a Kubernetes cluster: operators, accounts and their rights, quota, nodes.

Only requests that change nothing are sent: API discovery, gets and lists, SubjectAccessReviews (authorization.k8s.io).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
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

from components.core.console import UserError
from components.core.rayjob.kubernetes import is_header_error, status_message
from components.core.rayjob.manifest import rayjob
from components.core.rayjob.ray_cluster import SERVICE_ACCOUNT
from components.core.rayjob.spec import S3_VARIABLES, RayJobSpec
from pipelines.cluster.findings import Finding, missing, ok, unknown

_TIMEOUT_S = (5.0, 30.0)  # to connect; between two bytes of an answer
_APPLY = "kubectl apply -k k8s/overlays/gke (or plain)"
_WORKLOAD_IDENTITY = "iam.gke.io/gcp-service-account"
_OPERATORS = (
    ("argoproj.io", "v1alpha1", "workflows", "Kubeflow Pipelines", "install Kubeflow Pipelines 2.14 or newer"),
    ("ray.io", "v1", "rayjobs", "KubeRay's operator", "install KubeRay's operator 1.6.0 or newer"),
)
"""API group, version, resource; whose it is; remedy."""

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
_RAYJOB_RIGHTS = (
    Right("create", "ray.io", "rayjobs"),
    Right("get", "ray.io", "rayjobs"),
    Right("delete", "ray.io", "rayjobs"),
    Right("list", "", "pods"),
    Right("get", "", "pods", "log"),
)


def _has_kubeconfig() -> bool:
    return any(Path(path).expanduser().exists() for path in KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep))


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

    Raises:
        UserError: there is no kubeconfig, or it has no such context.
    """

    def __init__(self, namespace: str, context: str = "") -> None:
        settings = client.Configuration()
        try:
            if not context and not _has_kubeconfig() and SERVICE_ACCOUNT.is_dir():
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
        self._core, self._custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        self._reviews = client.AuthorizationV1Api(api)

    def require_answer(self) -> None:
        """Raise UserError if the API server does not answer, or does not accept the credentials."""
        try:
            client.VersionApi(self._core.api_client).get_code(_request_timeout=_TIMEOUT_S)
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

    def check_accounts(self, steps: str, ray: str, spec: RayJobSpec | None) -> list[Finding]:
        """Check the namespace, the service accounts `steps` and `ray`, and their rights.

        Args:
            spec: of the Ray cluster that the training step starts; None if it starts none.
        """
        found = self._check_namespace()
        if found[0].status == "missing":
            return found
        found += self._check_account(steps)
        found += self._check_rights(steps, (*_STEP_RIGHTS, *(_RAYJOB_RIGHTS if spec else ())))
        if spec:
            found += self._check_account(ray)
            if spec.credentials_secret:
                found += self._check_secret(spec.credentials_secret, {"key.json": "--from-file key.json=FILE"})
            if spec.s3_credentials_secret:
                keys = {name: f"--from-literal {name}=VALUE" for name in S3_VARIABLES}
                found += self._check_secret(spec.s3_credentials_secret, keys)
        return found

    def check_capacity(self, spec: RayJobSpec) -> list[Finding]:
        """Check that quota and nodes have room for the Ray cluster at its largest."""
        pods = _pods(spec)
        return [*self._check_quota(pods), *self._check_nodes(pods)]

    @_or_unknown
    def _check_operator(self, group: str, version: str, resource: str, owner: str, remedy: str) -> list[Finding]:
        what = f"{owner}: {resource}.{group} {version}"
        answer = self._ask(what, self._custom.get_api_resources, group, version)
        if answer is None or resource not in {entry.name for entry in answer.resources}:
            return [missing(f"{what} is not served", remedy)]
        return [ok(what)]

    @_or_unknown
    def _check_namespace(self) -> list[Finding]:
        what = f"namespace {self.namespace}"
        if self._ask(what, self._core.read_namespace, self.namespace) is None:
            return [missing(f"there is no {what}", _APPLY)]
        return [ok(what)]

    @_or_unknown
    def _check_account(self, name: str) -> list[Finding]:
        what = f"service account {name}"
        account = self._ask(what, self._core.read_namespaced_service_account, name, self.namespace)
        if account is None:
            return [missing(f"there is no {what} in {self.namespace}", _APPLY)]
        identity = (account.metadata.annotations or {}).get(_WORKLOAD_IDENTITY, "")
        if "CHANGE-ME" in identity:
            return [
                missing(
                    f"{what} acts as {identity}",
                    "set google_service_account in k8s/base/values.env, and apply overlays/gke again",
                )
            ]
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
    def _check_rights(self, account: str, rights: Sequence[Right]) -> list[Finding]:
        denied = []
        for right in rights:
            review = client.V1SubjectAccessReview(
                api_version="authorization.k8s.io/v1",
                kind="SubjectAccessReview",
                spec=client.V1SubjectAccessReviewSpec(
                    user=f"system:serviceaccount:{self.namespace}:{account}",
                    groups=["system:serviceaccounts", f"system:serviceaccounts:{self.namespace}"],
                    resource_attributes=client.V1ResourceAttributes(
                        namespace=self.namespace,
                        verb=right.verb,
                        group=right.group,
                        resource=right.resource,
                        subresource=right.subresource or None,
                        name=right.name or None,
                    ),
                ),
            )
            answer = self._ask(f"rights of {account}", self._reviews.create_subject_access_review, review)
            if answer is None or not answer.status.allowed:
                denied.append(str(right))
        if denied:
            return [missing(f"{account} may not {', '.join(denied)} in {self.namespace}", _APPLY)]
        return [ok(f"{account} may {', '.join(map(str, rights))}")]

    @_or_unknown
    def _check_quota(self, pods: Sequence[_Pod]) -> list[Finding]:
        answer = self._ask("quota", self._core.list_namespaced_resource_quota, self.namespace)
        count = sum(pod.count for pod in pods)
        wanted: dict[str, Decimal] = {"pods": Decimal(count)}
        for prefix in ("requests.", "limits.", ""):
            wanted[f"{prefix}cpu"] = sum((pod.cpus * pod.count for pod in pods), Decimal(0))
            wanted[f"{prefix}memory"] = sum((pod.memory_bytes * pod.count for pod in pods), Decimal(0))
        short = []
        for quota in answer.items if answer else ():
            hard, used = quota.status.hard or {}, quota.status.used or {}
            for name in wanted.keys() & hard.keys():
                left = parse_quantity(hard[name]) - parse_quantity(used.get(name, "0"))
                if left < wanted[name]:
                    short.append(f"{quota.metadata.name} leaves {_amount(left)} {name} of {_amount(wanted[name])}")
        if short:
            text = f"the largest Ray cluster does not fit: {'; '.join(sorted(short))}"
            return [missing(text, "raise the quota, or use fewer workers: --workers N")]
        return [ok(f"quota of {self.namespace} has room for the {count} pods of the largest Ray cluster")]

    @_or_unknown
    def _check_nodes(self, pods: Sequence[_Pod]) -> list[Finding]:
        answer = self._ask("nodes", self._core.list_node)
        nodes = [node.status.allocatable or {} for node in answer.items if not node.spec.unschedulable]
        for pod in pods:
            room = (
                parse_quantity(node.get("cpu", "0")) >= pod.cpus
                and parse_quantity(node.get("memory", "0")) >= pod.memory_bytes
                for node in nodes
            )
            if not any(room):
                return [
                    unknown(
                        f"none of {len(nodes)} nodes is large enough for a {pod.name}: {_amount(pod.cpus)} processors "
                        f"and {_amount(pod.memory_bytes)}B of memory",
                        "check that an autoscaled node pool has such nodes, or lower cpus_per_worker "
                        "(--ray-cluster-options)",
                    )
                ]
        return [ok(f"{len(nodes)} nodes, large enough for each pod of the Ray cluster")]

    def _ask(self, what: str, request: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer, None if the thing does not exist; raise _CannotLook if nobody can tell."""
        try:
            return request(*arguments, _request_timeout=_TIMEOUT_S)
        except ApiException as error:
            if error.status == 404:
                return None
            cause = f"{error.status} {status_message(error)}" if error.status else str(error.reason)
        except (HTTPError, OSError, ValueError) as error:  # ValueError: the answer is not of the API's shape
            cause = "the token has a character that HTTP does not allow" if is_header_error(error) else str(error)
        raise _CannotLook(unknown(f"{what}: {' '.join(cause.split())[:200]}", "ask somebody who may look"))


@dataclass(frozen=True)
class _Pod:
    """Requests of a kind of pods of the Ray cluster.

    Attributes:
        memory_bytes: of each pod, as `cpus`.
    """

    name: str
    count: int
    cpus: Decimal
    memory_bytes: Decimal


def _pods(spec: RayJobSpec) -> list[_Pod]:
    """Return the pods of the largest cluster: submitter, head with autoscaler, workers."""
    job = rayjob(spec)["spec"]
    cluster = job["rayClusterSpec"]
    group = cluster["workerGroupSpecs"][0]
    head = [container["resources"] for container in cluster["headGroupSpec"]["template"]["spec"]["containers"]]
    parts = {
        "submitter": (1, [c["resources"] for c in job["submitterPodTemplate"]["spec"]["containers"]]),
        "head": (1, [*head, cluster["autoscalerOptions"]["resources"]]),
        "worker": (group["maxReplicas"], [c["resources"] for c in group["template"]["spec"]["containers"]]),
    }
    return [
        _Pod(
            name,
            count,
            sum((parse_quantity(resources["requests"]["cpu"]) for resources in containers), Decimal(0)),
            sum((parse_quantity(resources["requests"]["memory"]) for resources in containers), Decimal(0)),
        )
        for name, (count, containers) in parts.items()
    ]


def _amount(number: Decimal) -> str:
    for unit, size in (("Gi", 2**30), ("Mi", 2**20)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number.normalize():f}"
