"""A client of a KFP server with credentials, checks of the server, and one clear error for each way to fail.

Needs the environment `pipelines`.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.platform.errors import UserError
from components.platform.storage.downloads.retry import may_recover
from components.platform.storage.input_files import read_text
from pipelines.submit.polling import TIMEOUT_S, NoAnswer, NotFound

TOKEN_VARIABLE = "KFP_TOKEN"
CERTIFICATES_VARIABLE = "SSL_CERT_FILE"
"""OpenSSL's variable for trusted certificates. kfp's client does not read it, and trusts public authorities only."""
OLDEST = (2, 14)
"""Oldest version that is supported: what is sent to servers and read from them was compared with sources since 2.14."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)\b")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_MAX_MESSAGE = 500
_AUDIENCE = "pipelines.kubeflow.org"


@dataclass(frozen=True)
class KfpServer:
    """A KFP server, and who asks it.

    Attributes:
        host: its URL; one without a scheme becomes http://.
        namespace: the user's, of a server with several users; empty otherwise.
        token: a bearer token; empty for none.
        token_file: file with a bearer token, read again for each request, because tokens expire.
        in_cluster: send the token that Kubernetes projects into a pod (kfp's ServiceAccountTokenVolumeCredentials).
    """

    host: str
    namespace: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    in_cluster: bool = False

    def __post_init__(self) -> None:
        # As urllib3 and kfp take it, but a future urllib3 refuses it, and warns about that.
        if self.host and "://" not in self.host:
            object.__setattr__(self, "host", f"http://{self.host}")

    def page(self, route: str) -> str:
        """Return the URL of a page of KFP's user interface."""
        return f"{self.host.rstrip('/')}/#/{route}"


def token_from_environment() -> str:
    """Return the token in $KFP_TOKEN, empty if there is none. UserError if it cannot be one."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    return _checked_token(token, f"${TOKEN_VARIABLE}") if token else ""


def connect(server: KfpServer, for_namespace: bool = False) -> Any:
    """Return a kfp.Client for a server that answers, is no older than OLDEST, and accepts the credentials.

    Its attribute `kfp_version` is the server's version, as server_version() returns it.

    Every method of the client raises UserError if the server refuses, and NoAnswer if a retry may help.

    Args:
        for_namespace: the client creates something, so a server with several users needs a namespace.

    Raises:
        UserError: the credentials cannot be read, or the server is no such server.
    """
    from kfp import Client
    from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

    class FileCredentials(ServiceAccountTokenVolumeCredentials):
        def _get_token(self) -> str:
            return read_token(Path(self._token_path), server.in_cluster)

    class CheckedClient(Client):
        multi_user: bool | None = None
        kfp_version = ""

        def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:
            # Called by the constructor, too. kfp's own method repeats a refused request for half a minute.
            from kfp_server_api import V2beta1GetHealthzResponse

            if self.multi_user is None:
                _translate_errors(self._healthz_api.api_client, server)
                self.multi_user = check_health(self._health, server)
            return V2beta1GetHealthzResponse(multi_user=self.multi_user)

        def _health(self, route: str) -> dict[str, Any]:
            answer = _get(self._healthz_api.api_client, route)
            self.kfp_version = server_version(answer)
            return answer

        def set_user_namespace(self, namespace: str) -> None:
            # kfp's own method also writes the namespace of a pod to its home directory, which may be read-only.
            self._context_setting["namespace"] = namespace

    credentials = None
    if server.token_file or server.in_cluster:
        credentials = FileCredentials(str(server.token_file) if server.token_file else None)
        credentials._get_token()  # before the first request: a missing file is the likeliest error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions of KFP before 2
        client = CheckedClient(
            host=server.host,
            existing_token=server.token or None,
            credentials=credentials,
            ssl_ca_cert=os.environ.get(CERTIFICATES_VARIABLE) or None,
            **({"namespace": server.namespace} if server.namespace else {}),
        )
        multi_user = client.get_kfp_healthz().multi_user
    check_namespace(server, multi_user, client.get_user_namespace() if for_namespace else None)
    return client


def check_namespace(server: KfpServer, multi_user: bool, namespace: str | None) -> None:
    """Raise UserError if a server with several users gets no namespace, or another server gets one.

    Args:
        namespace: where something is created; None if nothing is.
    """
    if multi_user and namespace == "":
        raise UserError(f"KFP at {server.host} has several users, and needs the namespace of one", "--namespace NAME")
    if server.namespace and not multi_user:
        raise UserError(
            f"--namespace {server.namespace}: KFP at {server.host} has no namespaces of users", "leave --namespace out"
        )


def read_token(path: Path, in_cluster: bool) -> str:
    """Read a bearer token from a file. UserError if there is no valid token.

    Args:
        in_cluster: the file is the pod's projected token, for error messages.
    """
    remedy = "write a token to the file, or pass another file with --existing-token-file"
    if in_cluster:
        remedy = f"--in-cluster-token needs a pod with a projected token for the audience {_AUDIENCE}"
    if not (text := read_text(path, remedy).strip()):
        raise UserError(f"{path} contains no token", remedy)
    return _checked_token(text, str(path))


def _checked_token(token: str, source: str) -> str:
    """Return a token that can be sent in an HTTP header. The error does not print it."""
    if not _TOKEN.fullmatch(token):
        raise UserError(f"{source} is not one token: it has spaces, lines or other characters", "write only the token")
    return token


def check_health(get: Callable[[str], dict[str, Any]], server: KfpServer) -> bool:
    """Return whether the server has several users. UserError if it is not a KFP server, or is older than OLDEST.

    Args:
        get: returns the JSON object at a route; raises NotFound if the answer is something else.
    """
    try:
        health = get("/apis/v2beta1/healthz")
    except NotFound:
        health = None
    version = server_version(health)
    if health is None:
        try:
            version = server_version(get("/apis/v1beta1/healthz")) or "1"
        except NotFound:
            raise UserError(
                f"the server at {server.host} is not a KFP server: it has no /apis/v2beta1/healthz",
                "check the address; on a Kubeflow with a central dashboard it ends with /pipeline",
            ) from None
    numbers = version_numbers(version)
    if health is None or (numbers and numbers < OLDEST):
        raise UserError(
            f"KFP at {server.host} is version {version}, older than {'.'.join(map(str, OLDEST))}",
            "upgrade the server, or run the pipeline on this machine: mlgo pipeline run",
        )
    if health.get("apiServerReady") is False:
        problem = f"KFP at {server.host} has a user interface, but the API server behind it does not answer"
        raise NoAnswer(problem, "kubectl get pods -n kubeflow -l app=ml-pipeline")
    return bool(health.get("multi_user"))


def _get(api_client: Any, route: str) -> dict[str, Any]:
    """Return the JSON object at a route of the server. NotFound if the answer is something else."""
    answer = api_client.call_api(
        route,
        "GET",
        header_params={"Accept": "application/json"},
        auth_settings=["Bearer"],
        response_type="object",
        _return_http_data_only=True,
    )
    if not isinstance(answer, dict):
        raise NotFound(f"{route} is no JSON object")
    return answer


def server_version(health: dict[str, Any] | None) -> str:
    """Return the version in an answer to /healthz: tag_name from the API server, apiServerTagName from the interface.

    Neither is in the schema of the answer (healthz.proto), and a server that was built by hand has no version.
    """
    return str((health or {}).get("tag_name") or (health or {}).get("apiServerTagName") or "")


def version_numbers(version: str) -> tuple[int, int] | None:
    """Return the first two numbers of a version; None if it has none, as that of a server that was built by hand."""
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2])) if found else None


def _translate_errors(api_client: Any, server: KfpServer) -> None:
    """Make every request of a client time out, and raise UserError, or NoAnswer if a retry may help.

    A request is sent once: polling repeats it, and says so. A redirect is an error, because it leads to a page to log
    in, and a POST that follows it becomes a GET.
    """
    from kfp_server_api.exceptions import ApiException
    from urllib3.util import Retry

    api_client.rest_client.pool_manager.connection_pool_kw["retries"] = Retry(0, raise_on_redirect=False)
    send: Callable[..., Any] = api_client.rest_client.request

    def request(method: str, url: str, **options: Any) -> Any:
        # A tuple, because the client ignores a timeout that is a float.
        options["_request_timeout"] = options.get("_request_timeout") or (TIMEOUT_S, TIMEOUT_S)
        try:
            answer = answered(server, lambda: send(method, url, **options))
        except ApiException as error:
            raise refusal(server, error) from None
        refuse_web_page(server, answer.getheader("Content-Type"))
        return answer

    api_client.rest_client.request = request


def answered(server: KfpServer, send: Callable[[], Any]) -> Any:
    """Return what `send` returns, a request by urllib3. UserError, or NoAnswer if a retry may help, if it fails."""
    from urllib3.exceptions import HTTPError, LocationValueError, SSLError

    try:
        return send()
    except HTTPError as error:
        cause = getattr(error, "reason", None) or error
        if isinstance(cause, SSLError):
            problem = f"KFP at {server.host} has no TLS certificate that is trusted here: {cause}"
            remedy = f"check the address, http or https, or set ${CERTIFICATES_VARIABLE} to its authority's file"
            raise UserError(problem, remedy) from None
        if isinstance(cause, LocationValueError):
            problem = f"KFP at {server.host} cannot be asked: {cause}"
            raise UserError(problem, "pass the URL of a server: --host http://HOST:PORT") from None
        raise NoAnswer(
            f"KFP at {server.host} does not answer: {cause}",
            "check the address, or kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80",
        ) from None


def refuse_web_page(server: KfpServer, content_type: str | None) -> None:
    """Raise UserError for an answer that is a web page."""
    if "html" in (content_type or "").lower():
        raise UserError(
            f"the server at {server.host} answers with a web page instead of KFP's API, probably to log in",
            _credentials_remedy(server),
        )


def refusal(server: KfpServer, error: Any) -> UserError:
    """Return the UserError for an answer with an HTTP status other than 2xx.

    Args:
        error: has the `status`, `reason`, `headers` and `body` of the answer.
    """
    status = error.status or 0
    problem = f"KFP at {server.host} refuses the request: {status} {_message(error)}"
    if 300 <= status < 400:
        place = (error.headers or {}).get("Location", "another address").partition("?")[0]
        return UserError(
            f"the server at {server.host} redirects to {place}, probably to log in",
            f"{_credentials_remedy(server)}; if that is KFP's address, pass it as --host",
        )
    if status == 401:
        return UserError(f"{problem}; the token is missing, wrong or expired", _credentials_remedy(server))
    if status == 403:
        where = f"the namespace {server.namespace}" if server.namespace else "the namespace, or pass --namespace NAME"
        return UserError(problem, f"ask the server's administrator for the permission in {where}")
    if status == 404:
        return NotFound(problem, "check the address, and the ID or name")
    kind = NoAnswer if may_recover(status) or status == 0 else UserError
    return kind(problem, "see its message; check the address")


def _credentials_remedy(server: KfpServer) -> str:
    if server.token_file:
        return f"write a new token to {server.token_file}"
    if server.in_cluster:
        return f"check the audience of the projected token: {_AUDIENCE}"
    if server.token:
        return f"set ${TOKEN_VARIABLE} to a new token"
    return f"pass --existing-token-file FILE, or set ${TOKEN_VARIABLE}"


def _message(error: Any) -> str:
    """Return the server's message: `message` from its API, `error_message` from uploads."""
    try:
        document = json.loads(error.body)
        text = str(document.get("message") or document["error_message"])
    except (TypeError, ValueError, KeyError, AttributeError):
        text = str(error.reason)
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
