"""Requests to a KFP server's REST API: credentials, checks of the server, and one clear error for each way to fail.

kfp's own client is not used: the environment for training and the images of steps do not have it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from components.platform.errors import UserError
from components.platform.storage.downloads.retry import may_recover
from components.platform.storage.input_files import read_text
from pipelines.submit.polling import TIMEOUT_S, NoAnswer, NotFound

TOKEN_VARIABLE = "KFP_TOKEN"
CERTIFICATES_VARIABLE = "SSL_CERT_FILE"
POD_TOKEN_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"
POD_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"
HOST_VARIABLE = "MLGO_KFP_HOST"
"""Environment variable of a pod with the URL of KFP's API, where it is not at _IN_CLUSTER."""
OLDEST = (2, 14)
"""Oldest version that is supported: what is sent to servers and read from them was compared with sources since 2.14."""
_API = "/apis/v2beta1"
_IN_CLUSTER = "http://ml-pipeline.kubeflow:8888"
"""KFP's API in a cluster that has it in its usual namespace."""
_NAMESPACE = "kubeflow"
"""Namespace of the pods of a KFP with one user, where it was installed as its documentation says."""
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_SDK_CONTEXT = ".config/kfp/context.json"
"""File in the home directory in which kfp's client keeps a user's namespace, and a cookie and header to log in with."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)\b")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HEADER = re.compile(r"[\x20-\x7e]+")
_MAX_MESSAGE = 500
_AUDIENCE = "pipelines.kubeflow.org"


@dataclass(frozen=True)
class KfpAddress:
    """A KFP server, and who asks it.

    Attributes:
        host: its URL; one without a scheme becomes http://.
        namespace: the user's, of a server with several users; empty otherwise.
        token: a bearer token; empty for none.
        token_file: file with a bearer token, read again for each request, because tokens expire.
        in_cluster: send the token that Kubernetes projects into a pod.
    """

    host: str
    namespace: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    in_cluster: bool = False

    def __post_init__(self) -> None:
        # As urllib3 takes it, but a future urllib3 refuses it, and warns about that.
        if self.host and "://" not in self.host:
            object.__setattr__(self, "host", f"http://{self.host}")

    def page(self, route: str) -> str:
        """Return the URL of a page of KFP's user interface."""
        return f"{self.host.rstrip('/')}/#/{route}"

    @property
    def pods_namespace(self) -> str:
        """Return the namespace of the pods of runs."""
        return self.namespace or _NAMESPACE

    def read_token(self) -> str:
        """Return the bearer token for the next request, "" for none. UserError if a file has no valid one."""
        if self.in_cluster:
            return read_token(Path(os.environ.get(POD_TOKEN_VARIABLE) or POD_TOKEN), in_cluster=True)
        return read_token(self.token_file, in_cluster=False) if self.token_file else self.token


def server_of_pod() -> KfpAddress:
    """Return the KFP server whose API a pod of a run asks."""
    # In a namespace with KFP, Kubernetes sets the variables of its service.
    address, port = (os.environ.get(f"ML_PIPELINE_SERVICE_{name}") for name in ("HOST", "PORT_HTTP"))
    host = os.environ.get(HOST_VARIABLE) or (f"http://{address}:{port}" if address and port else _IN_CLUSTER)
    return KfpAddress(host, in_cluster=Path(os.environ.get(POD_TOKEN_VARIABLE) or POD_TOKEN).is_file())


def token_from_environment() -> str:
    """Return the token in $KFP_TOKEN, empty if there is none. UserError if it cannot be one."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    return _require_token(token, f"${TOKEN_VARIABLE}") if token else ""


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
    return _require_token(text, str(path))


def _require_token(token: str, source: str) -> str:
    """Return a token that can be sent in an HTTP header. The error does not print it."""
    if not _TOKEN.fullmatch(token):
        raise UserError(f"{source} is not one token: it has spaces, lines or other characters", "write only the token")
    return token


@dataclass(frozen=True)
class Health:
    """What a server tells of itself.

    Attributes:
        version: as the server writes it; empty for one that was built by hand.
        multi_user: it has several users, each with a namespace; None if it does not tell.
    """

    version: str
    multi_user: bool | None

    @property
    def numbers(self) -> tuple[int, int] | None:
        """Return the first two numbers of the version; None if it has none."""
        return version_numbers(self.version)


class KfpClient:
    """Sends requests to a server; each is sent once, and polling repeats it where that may help.

    Every method raises UserError if the server refuses, or answers with something else; NotFound if it has no such
    route or object; NoAnswer if a retry may help.
    """

    def __init__(self, server: KfpAddress) -> None:
        self.server = server

    @cached_property
    def _pool(self) -> Any:
        import urllib3

        return urllib3.PoolManager(ca_certs=os.environ.get(CERTIFICATES_VARIABLE) or None)

    @cached_property
    def health(self) -> Health:
        """What the server tells of itself. UserError if it is no KFP server, or is older than OLDEST."""
        server = self.server
        try:
            document = self.ask("GET", "healthz")
        except NotFound:
            document = None
        version = _version(document)
        if document is None:
            try:
                version = _version(self._ask("GET", "/apis/v1beta1/healthz")) or "1"
            except NotFound:
                raise UserError(
                    f"the server at {server.host} is not a KFP server: it has no {_API}/healthz",
                    "check the address; on a Kubeflow with a central dashboard it ends with /pipeline",
                ) from None
        numbers = version_numbers(version)
        if document is None or (numbers and numbers < OLDEST):
            raise UserError(
                f"KFP at {server.host} is version {version}, older than {'.'.join(map(str, OLDEST))}",
                "upgrade the server, or run the pipeline on this machine: mlgo pipeline run",
            )
        if document.get("apiServerReady") is False:
            problem = f"KFP at {server.host} has a user interface, but the API server behind it does not answer"
            raise NoAnswer(problem, "kubectl get pods -n kubeflow -l app=ml-pipeline")
        return Health(version, document.get("multi_user"))

    def require_usable(self) -> Health:
        """Return what the server tells of itself. UserError if a namespace is given that it cannot have."""
        server = self.server
        if server.namespace and not self.health.multi_user:
            raise UserError(
                f"--namespace {server.namespace}: KFP at {server.host} has no namespaces of users",
                "leave --namespace out",
            )
        return self.health

    def namespace_to_create_in(self) -> str:
        """Return where a user's objects are created, "" on a server with one user. UserError if that is unknown."""
        if not self.require_usable().multi_user:
            return ""
        namespace = self.server.namespace or _sdk_context().get("namespace", "")
        if not namespace:
            with suppress(OSError):
                namespace = _POD_NAMESPACE.read_text().strip()
        if not namespace:
            raise UserError(
                f"KFP at {self.server.host} has several users, and needs the namespace of one", "--namespace NAME"
            )
        return namespace

    def ask(self, method: str, route: str, body: Any = None, **query: Any) -> dict[str, Any]:
        """Return the JSON object that the server answers at a route of its API.

        Args:
            query: values that are empty are left out.
        """
        return self._ask(method, f"{_API}/{route}{_query(query)}", **({} if body is None else {"json": body}))

    def upload(self, route: str, file_name: str, content: str, **query: Any) -> dict[str, Any]:
        """Send a file to a route of the API; return the JSON object that the server answers."""
        return self._ask("POST", f"{_API}/{route}{_query(query)}", fields={"uploadfile": (file_name, content)})

    def get_text(self, path: str) -> str:
        """Return what the server has at a path of its host, "" if it has nothing there."""
        try:
            return str(self._send("GET", path).data.decode("utf-8", "replace"))
        except UserError:
            return ""

    def get_pod(self, name: str) -> dict[str, Any]:
        """Return a pod of Kubernetes through the user interface, {} if it does not show it."""
        try:
            return self._ask("GET", f"/k8s/pod{_query({'podname': name, 'podnamespace': self.server.pods_namespace})}")
        except UserError:
            return {}

    def _ask(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        response = self._send(method, path, **content)
        try:
            document = json.loads(response.data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise NotFound(f"{path.partition('?')[0]} is no JSON object", "check the address")
        return document

    def _send(self, method: str, path: str, **content: Any) -> Any:
        """Return the response to a request.

        A redirect is an error, because it leads to a page to log in, and a POST that follows it becomes a GET.
        """
        server, token, context = self.server, self.server.read_token(), _sdk_context()
        headers = {
            "Accept": "application/json",
            "Authorization": f"Bearer {token}" if token else "",
            "Cookie": context.get("client_authentication_cookie", ""),
            context.get("client_authentication_header_name", ""): context.get("client_authentication_header_value", ""),
        }
        with translate_connection_errors(server):
            response = self._pool.request(
                method,
                f"{server.host.rstrip('/')}{path}",
                headers={name: value for name, value in headers.items() if name and value},
                timeout=TIMEOUT_S,
                retries=False,
                redirect=False,
                **content,
            )
        if response.status >= 300:
            raise error_from_response(server, response)
        if "html" in response.headers.get("Content-Type", "").lower():
            raise UserError(
                f"the server at {server.host} answers with a web page instead of KFP's API, probably to log in",
                _credentials_remedy(server),
            )
        return response


def _query(values: dict[str, Any]) -> str:
    """Return the query of a URL with the values that are not empty."""
    present = {name: value for name, value in values.items() if value}
    return f"?{urlencode(present)}" if present else ""


def _sdk_context() -> dict[str, str]:
    """Return what kfp's client keeps in the home directory; {} if there is nothing."""
    with suppress(OSError, ValueError, RuntimeError):  # RuntimeError: no home directory
        document = json.loads((Path.home() / _SDK_CONTEXT).read_text())
        if isinstance(document, dict):
            return {key: text for key, text in document.items() if isinstance(text, str) and _HEADER.fullmatch(text)}
    return {}


def _version(health: dict[str, Any] | None) -> str:
    """Return the version in an answer to /healthz: tag_name from the API server, apiServerTagName from the interface.

    Neither is in the schema of the answer (healthz.proto), and a server that was built by hand has no version.
    """
    return str((health or {}).get("tag_name") or (health or {}).get("apiServerTagName") or "")


def version_numbers(version: str) -> tuple[int, int] | None:
    """Return the first two numbers of a version; None if it has none, as that of a server that was built by hand."""
    match = _VERSION.match(version)
    return (int(match[1]), int(match[2])) if match else None


@contextmanager
def translate_connection_errors(server: KfpAddress) -> Iterator[None]:
    """Raise UserError, or NoAnswer if a retry may help, where a request by urllib3 fails."""
    from urllib3.exceptions import HTTPError, LocationValueError, SSLError

    try:
        yield
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


def error_from_response(server: KfpAddress, response: Any) -> UserError:
    """Return the error for a response of urllib3 with an HTTP status other than 2xx."""
    status = response.status
    problem = f"KFP at {server.host} refuses the request: {status} {_message(response)}"
    if 300 <= status < 400:
        address = response.headers.get("Location", "another address").partition("?")[0]
        return UserError(
            f"the server at {server.host} redirects to {address}, probably to log in",
            f"{_credentials_remedy(server)}; if that is KFP's address, pass it as --host",
        )
    if status == 401:
        return UserError(f"{problem}; the token is missing, wrong or expired", _credentials_remedy(server))
    if status == 403:
        where = f"the namespace {server.namespace}" if server.namespace else "the namespace, or pass --namespace NAME"
        return UserError(problem, f"ask the server's administrator for the permission in {where}")
    if status == 404:
        return NotFound(problem, "check the address, and the ID or name")
    return (NoAnswer if may_recover(status) else UserError)(problem, "see its message; check the address")


def _credentials_remedy(server: KfpAddress) -> str:
    if server.token_file:
        return f"write a new token to {server.token_file}"
    if server.in_cluster:
        return f"check the audience of the projected token: {_AUDIENCE}"
    if server.token:
        return f"set ${TOKEN_VARIABLE} to a new token"
    return f"pass --existing-token-file FILE, or set ${TOKEN_VARIABLE}"


def _message(response: Any) -> str:
    """Return the server's message: `message` from its API, `error_message` from uploads."""
    try:
        document = json.loads(response.data)
        text = str(document.get("message") or document["error_message"])
    except (TypeError, ValueError, KeyError, AttributeError):
        text = str(response.reason)
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
