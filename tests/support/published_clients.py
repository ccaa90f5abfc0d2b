"""Requests as the clients send them that Google and Kubeflow publish, to compare ours with.

Reads a JSON list [API, HTTP method, path with query, body or null] from each line of stdin, and prints the request of
the published client for the same call, {"method", "path", "query", "body"}, or {"error"} if the request does not fit
the API. Runs in the environment `pipelines`, to which docker/requirements/schemas.txt adds the clients.

- vertex: google-cloud-aiplatform. The body becomes the message of its protocol buffers, which its REST client sends to
  a transport that records it.
- vertex-message: no request, but an answer of a fake service: the body must be the message of the package that the path
  names.
- kfp: kfp_server_api, whose transport is replaced by one that records.
- model-registry: the client of Kubeflow's model-registry, generated from its OpenAPI document.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import kfp_server_api
import mr_openapi
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform_v1
from google.protobuf import json_format
from requests.adapters import HTTPAdapter

VERTEX_METHODS = {
    r"POST /v1/(?P<parent>projects/\w+/locations/\w+)/pipelineJobs": ("Pipeline", "CreatePipelineJob", "pipelineJob"),
    r"GET /v1/(?P<parent>projects/\w+/locations/\w+)/pipelineJobs": ("Pipeline", "ListPipelineJobs", None),
    r"GET /v1/(?P<name>projects/\w+/locations/\w+/pipelineJobs/[\w-]+)": ("Pipeline", "GetPipelineJob", None),
    r"POST /v1/(?P<name>projects/\w+/locations/\w+/pipelineJobs/[\w-]+):cancel": ("Pipeline", "CancelPipelineJob", ""),
    r"POST /v1/(?P<parent>projects/\w+/locations/\w+)/schedules": ("Schedule", "CreateSchedule", "schedule"),
    r"GET /v1/(?P<parent>projects/\w+/locations/\w+)/schedules": ("Schedule", "ListSchedules", None),
    r"POST /v1/(?P<name>projects/\w+/locations/\w+/schedules/[\w-]+):pause": ("Schedule", "PauseSchedule", ""),
    r"POST /v1/(?P<name>projects/\w+/locations/\w+/schedules/[\w-]+):resume": ("Schedule", "ResumeSchedule", ""),
    r"DELETE /v1/(?P<name>projects/\w+/locations/\w+/schedules/[\w-]+)": ("Schedule", "DeleteSchedule", None),
    r"POST /v1/(?P<parent>projects/\w+/locations/\w+)/models:upload": ("Model", "UploadModel", ""),
    r"POST /v1/(?P<name>projects/\w+/locations/\w+/models/[\w@-]+):mergeVersionAliases": (
        "Model",
        "MergeVersionAliases",
        "",
    ),
    r"POST /v1/(?P<parent>projects/\w+/locations/\w+/models/[\w@-]+)/evaluations:import": (
        "Model",
        "ImportModelEvaluation",
        "",
    ),
    r"GET /v1/(?P<parent>projects/\w+/locations/\w+/models/[\w@-]+)/evaluations": (
        "Model",
        "ListModelEvaluations",
        None,
    ),
    r"GET /v1/(?P<name>projects/\w+/locations/\w+/models/[\w-]+):listVersions": ("Model", "ListModelVersions", None),
}
"""HTTP method and path -> service, RPC, and the field of its request that the body is; "" if it is the request."""
KFP_ROUTE = "/apis/v2beta1/"
KFP_METHODS = {
    r"GET healthz": ("Healthz", "healthz_service_get_healthz"),
    r"GET experiments": ("Experiment", "experiment_service_list_experiments"),
    r"POST experiments": ("Experiment", "experiment_service_create_experiment"),
    r"GET pipelines": ("Pipeline", "pipeline_service_list_pipelines"),
    r"POST pipelines": ("Pipeline", "pipeline_service_create_pipeline"),
    r"GET pipelines/(?P<pipeline_id>[\w-]+)/versions": ("Pipeline", "pipeline_service_list_pipeline_versions"),
    r"GET pipelines/(?P<pipeline_id>[\w-]+)/versions/(?P<pipeline_version_id>[\w-]+)": (
        "Pipeline",
        "pipeline_service_get_pipeline_version",
    ),
    r"GET recurringruns": ("RecurringRun", "recurring_run_service_list_recurring_runs"),
    r"POST recurringruns": ("RecurringRun", "recurring_run_service_create_recurring_run"),
    r"POST recurringruns/(?P<recurring_run_id>[\w-]+):enable": (
        "RecurringRun",
        "recurring_run_service_enable_recurring_run",
    ),
    r"POST recurringruns/(?P<recurring_run_id>[\w-]+):disable": (
        "RecurringRun",
        "recurring_run_service_disable_recurring_run",
    ),
    r"DELETE recurringruns/(?P<recurring_run_id>[\w-]+)": (
        "RecurringRun",
        "recurring_run_service_delete_recurring_run",
    ),
    r"GET runs": ("Run", "run_service_list_runs"),
    r"POST runs": ("Run", "run_service_create_run"),
    r"GET runs/(?P<run_id>[\w-]+)": ("Run", "run_service_get_run"),
    r"POST runs/(?P<run_id>[\w-]+):terminate": ("Run", "run_service_terminate_run"),
    r"POST runs/(?P<run_id>[\w-]+):retry": ("Run", "run_service_retry_run"),
}
"""HTTP method and route -> service and method of kfp_server_api."""
REGISTRY_ROUTE = "/api/model_registry/v1/"
REGISTRY_METHODS: dict[str, tuple[str, Any]] = {
    r"GET registered_models": ("get_registered_models", None),
    r"GET registered_model": ("find_registered_model", None),
    r"POST registered_models": ("create_registered_model", mr_openapi.RegisteredModelCreate),
    r"PATCH registered_models/(\d+)": ("update_registered_model", mr_openapi.RegisteredModelUpdate),
    r"GET model_version": ("find_model_version", None),
    r"POST model_versions": ("create_model_version", mr_openapi.ModelVersionCreate),
    r"GET model_versions/(\d+)/artifacts": ("get_model_version_artifacts", None),
    r"POST model_versions/(\d+)/artifacts": ("upsert_model_version_artifact", mr_openapi.Artifact),
}
"""HTTP method and route -> method of Kubeflow's client, and the model of the request's body."""


class _Recorded(Exception):
    """A request that is not sent; `request` is what this program prints."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__()
        self.request = request


class _Recorder(HTTPAdapter):
    """A transport of requests that sends nothing."""

    def send(self, request: Any, *_arguments: Any, **_options: Any) -> Any:
        # The client asks for enumerations as numbers, which is about the answer.
        query = [pair for pair in parse_qsl(urlsplit(request.url).query) if not pair[0].startswith("$")]
        document = json.loads(request.body) if request.body else None
        path = unquote(urlsplit(request.url).path)
        raise _Recorded({"method": request.method, "path": path, "query": query, "body": document})


@cache
def _vertex_client(service: str) -> Any:
    client = getattr(aiplatform_v1, f"{service}ServiceClient")
    made = client(credentials=AnonymousCredentials(), transport="rest")
    made.transport._session.mount("https://", _Recorder())
    return made


def by_vertex(method: str, path: str, body: Any) -> dict[str, Any]:
    """Return the request of Google's client. ValueError if the API has no such route or field."""
    route, query = urlsplit(path).path, dict(parse_qsl(urlsplit(path).query))
    matches = {pattern: re.fullmatch(pattern, f"{method} {route}") for pattern in VERTEX_METHODS}
    pattern, match = next((pair for pair in matches.items() if pair[1]), ("", None))
    if match is None:
        raise ValueError(f"no method of the API is {method} {route}")
    service, rpc, field = VERTEX_METHODS[pattern]
    document = {**match.groupdict(), **query, **({field: body} if field else body or {})}
    request = getattr(aiplatform_v1, f"{rpc}Request")()
    try:
        json_format.ParseDict(document, type(request).pb(request))
    except json_format.ParseError as error:
        raise ValueError(str(error).splitlines()[0]) from None
    call = re.sub("(?<=[a-z])(?=[A-Z])", "_", rpc).lower()
    try:
        getattr(_vertex_client(service), call)(request=request, retry=None)
    except _Recorded as recorded:
        return recorded.request
    raise ValueError("the client sent nothing")


def by_vertex_message(method: str, path: str, body: Any) -> dict[str, Any]:
    """Return the request as it is. ValueError unless the body is a message of this name."""
    message = getattr(aiplatform_v1, path)()
    try:
        json_format.ParseDict(body, type(message).pb(message))
    except json_format.ParseError as error:
        raise ValueError(str(error).splitlines()[0]) from None
    return {"method": method, "path": path, "query": [], "body": body}


def by_kfp(method: str, path: str, body: Any) -> dict[str, Any]:
    """Return the request of kfp_server_api. ValueError if the API has no such route or parameter."""
    route, query = urlsplit(path).path, dict(parse_qsl(urlsplit(path).query))
    call = f"{method} {route.removeprefix(KFP_ROUTE)}" if route.startswith(KFP_ROUTE) else ""
    matches = {pattern: re.fullmatch(pattern, call) for pattern in KFP_METHODS}
    pattern, match = next((pair for pair in matches.items() if pair[1]), ("", None))
    if match is None:
        raise ValueError(f"no method of the API is {method} {route}")
    service, call = KFP_METHODS[pattern]
    client = kfp_server_api.ApiClient(kfp_server_api.Configuration(host="http://kfp"))

    def record(method: str, url: str, query_params: Any = (), body: Any = None, **_options: Any) -> None:
        pairs = [[name, str(value)] for name, value in query_params or ()]
        raise _Recorded({"method": method, "path": urlsplit(url).path, "query": pairs, "body": body})

    client.rest_client.request = record
    arguments = [body] if body is not None else []
    try:
        getattr(getattr(kfp_server_api, f"{service}ServiceApi")(client), call)(
            *match.groupdict().values(), *arguments, **query
        )
    except _Recorded as recorded:
        return recorded.request
    except kfp_server_api.ApiTypeError as error:
        raise ValueError(str(error)) from None
    raise ValueError("the client sent nothing")


def by_model_registry(method: str, path: str, body: Any) -> dict[str, Any]:
    """Return the request of Kubeflow's client. ValueError if the API has no such route, parameter or field."""
    route, query = urlsplit(path).path, parse_qsl(urlsplit(path).query)
    call = f"{method} {route.removeprefix(REGISTRY_ROUTE)}" if route.startswith(REGISTRY_ROUTE) else ""
    matches = {pattern: re.fullmatch(pattern, call) for pattern in REGISTRY_METHODS}
    pattern, match = next((pair for pair in matches.items() if pair[1]), ("", None))
    if match is None:
        raise ValueError(f"no method of the API is {method} {route}")
    name, model = REGISTRY_METHODS[pattern]
    arguments = [*match.groups(), *([model.from_dict(body)] if model else [])]
    options = {re.sub("(?=[A-Z])", "_", key).lower(): value for key, value in query}
    recorded: list[dict[str, Any]] = []

    async def send() -> None:
        client = mr_openapi.ApiClient(mr_openapi.Configuration(host="http://registry"))

        async def record(method: str, url: str, _headers: Any = None, body: Any = None, *_more: Any, **_: Any) -> None:
            raise _Recorded({"method": method, "path": urlsplit(url).path, "query": url, "body": body})

        client.call_api = record
        async with client:
            try:
                await getattr(mr_openapi.ModelRegistryServiceApi(client), name)(*arguments, **options)
            except _Recorded as sent:
                recorded.append(sent.request)

    asyncio.run(send())
    (request,) = recorded
    request["query"] = [list(pair) for pair in parse_qsl(urlsplit(request["query"]).query)]
    if body is not None:  # the client adds the defaults of some fields
        request["body"] = {key: value for key, value in request["body"].items() if key in body or key != "state"}
    return request


BY_API = {"vertex": by_vertex, "vertex-message": by_vertex_message, "kfp": by_kfp, "model-registry": by_model_registry}

if __name__ == "__main__":
    for line in sys.stdin:
        api, *request = json.loads(line)
        try:
            result = BY_API[api](*request)
        except ValueError as error:  # of pydantic, too
            result = {"error": str(error)}
        print(json.dumps(result), flush=True)
