"""The Kubernetes API from inside a cluster, as the pod's service account."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kubernetes.client import ApiClient, ApiException, Configuration, CoreV1Api, CustomObjectsApi
from kubernetes.config import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.rayjob.ray_cluster import SERVICE_ACCOUNT
from components.platform.storage.downloads.retry import GaveUp, may_recover, retry

PATIENCE_S = 900.0
"""How long requests may keep failing: the upgrade of a zonal control plane takes minutes."""
_TIMEOUT_S = (5.0, 60.0)  # to connect; between two bytes of an answer
_PAUSE_S = (0.5, 30.0)  # before the second attempt; at most
_TOKEN = re.compile(r"[\x21-\x7e]+")
_ACCOUNT = re.compile(r"system:serviceaccount:([^:\s\"]+):([^:\s\"]+)")
_IN_NAMESPACE = re.compile(r'in the namespace "([^"]+)"')

T = TypeVar("T")


class ApiServer:
    """The API server of the cluster that this process runs in.

    Args:
        directory: token and CA certificate of the service account.
        patience_s: see PATIENCE_S.

    Attributes:
        rayjobs: the API of custom resources.
        pods: the API of pods and their logs.

    Raises:
        UserError: this process does not run in a pod with a service account.
    """

    def __init__(self, directory: Path = SERVICE_ACCOUNT, patience_s: float = PATIENCE_S) -> None:
        self._configuration = Configuration()
        # The server is in the same cluster: ignore proxies of the environment.
        self._configuration.proxy = None
        self._configuration.retries = False  # `call` repeats requests
        self._token = directory / "token"
        self._loader = InClusterConfigLoader(str(self._token), str(directory / "ca.crt"))
        try:
            self._loader.load_and_set(self._configuration)
        except (ConfigException, OSError) as error:
            raise UserError(
                f"this is not a pod with a Kubernetes service account: {error}",
                "run the step in the cluster, with automountServiceAccountToken and the service account mlgo-steps",
            ) from None
        if not _TOKEN.fullmatch(self._configuration.api_key["authorization"].removeprefix("bearer ")):
            raise self._unusable_token()
        self._patience_s = patience_s
        client = ApiClient(self._configuration)
        self.rayjobs, self.pods = CustomObjectsApi(client), CoreV1Api(client)

    def as_json(self, api_objects: Any) -> Any:
        """Return objects that a method of `pods` has returned as the JSON that the server sent."""
        return self.pods.api_client.sanitize_for_serialization(api_objects)

    def _unusable_token(self) -> UserError:
        return UserError(
            f"{self._token} is not one token: it has spaces, lines or other characters",
            "mount the token that Kubernetes projects, or write only the token to the file",
        )

    def call(self, request: Callable[..., T], *arguments: Any, patience_s: float | None = None, **named: Any) -> T:
        """Return what a method of `rayjobs` or `pods` returns; repeat it while the server does not answer.

        A request whose answer is lost is repeated: the caller must treat "already exists" and "not found" as success.

        Args:
            patience_s: replaces that of the server; 0 tries once.

        Raises:
            UserError: no answer within `patience_s`.
            ApiException: the server refuses.
        """
        patience_s = self._patience_s if patience_s is None else patience_s

        def ask() -> T:
            token = self._configuration.api_key["authorization"]
            try:
                return request(*arguments, _request_timeout=_TIMEOUT_S, **named)
            except ApiException as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error.reason):
                    problem = f"the server at {self._configuration.host} has no certificate of this cluster's authority"
                    raise UserError(problem, "check KUBERNETES_SERVICE_HOST, and who answers there") from None
                if error.status == 401:
                    self._loader.load_and_set(self._configuration)  # kubelet replaces the token before it expires
                    if self._configuration.api_key["authorization"] != token:
                        return request(*arguments, _request_timeout=_TIMEOUT_S, **named)
                raise
            except ValueError as error:
                if is_header_error(error):
                    raise self._unusable_token() from None
                raise

        def report(count: int, error: Exception) -> None:
            if count == 2:  # one may be a connection that the server has closed
                say(
                    f"the Kubernetes API does not answer; repeating the request for {patience_s:.0f} s: {_cause(error)}"
                )

        try:
            return retry(ask, _is_transient, patience_s, report, *_PAUSE_S)
        except GaveUp as error:
            raise UserError(
                f"the Kubernetes API at {self._configuration.host} has not answered for {patience_s:.0f} s: "
                f"{_cause(error.cause)}",
                "what runs in the cluster continues; run the same command again to follow it",
            ) from None


def is_header_error(error: Exception) -> bool:
    """Return whether http.client refuses to send a header, the token. Its message has the token in it."""
    return isinstance(error, ValueError) and "header value" in str(error)


def _is_transient(error: Exception) -> bool:
    if isinstance(error, ApiException):
        return error.status == 0 or may_recover(error.status)  # 0: a broken TLS connection
    # An answer that is cut off or not HTTP comes from a proxy. ValueError: its text is not UTF-8.
    return isinstance(error, urllib3.exceptions.HTTPError | ValueError | OSError)


def _cause(error: Exception) -> str:
    if isinstance(error, ApiException):
        return f"{error.status} {status_message(error)}"
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def error_of_refusal(error: ApiException, what: str, remedy: str) -> UserError:
    """Return the error for a refused request.

    Args:
        what: what was asked for.
        remedy: for statuses other than those about the service account.
    """
    problem = f"the Kubernetes API refuses {what}: {error.status} {status_message(error)}"
    match error.status:
        case 401:
            return UserError(problem, "does the pod's service account exist?")
        case 403:
            return UserError(problem, quota_remedy(problem) or _rights_remedy(status_message(error)))
        case _:
            return UserError(problem, remedy)


def role_binding(of: str, account: str, namespace: str) -> str:
    """Return the command that lets the service account `account` of the namespace `of` run RayJobs in `namespace`."""
    return (
        f"kubectl create rolebinding {of}-{account} --namespace {namespace} --role mlgo-run-ray-jobs "
        f"--serviceaccount {of}:{account}"
    )


def quota_remedy(message: str) -> str:
    """Return the remedy if a message of Kubernetes is about a quota, else ""."""
    if "exceeded quota" not in message:
        return ""
    return "kubectl get rayjobs -A: delete those of failed trainings, or raise the quota (k8s/base/quota.yaml)"


def _rights_remedy(message: str) -> str:
    """Return what gives the account and the namespace in a message of Kubernetes their rights (docs/cluster.md)."""
    account, namespace = _ACCOUNT.search(message), _IN_NAMESPACE.search(message)
    if not account or not namespace or account.groups() == (namespace[1], "mlgo-steps"):
        return "apply k8s/base, and run the step as the service account mlgo-steps of its namespace, or with its role"
    return f"apply k8s/base, and {role_binding(account[1], account[2], namespace[1])}"


def status_message(error: ApiException) -> str:
    """Return the message of the `Status` object of an error."""
    try:
        status = json.loads(error.body or "")
    except ValueError:
        status = {}
    message = status.get("message") if isinstance(status, dict) else ""
    return str(message or error.body or error.reason)[:500]
