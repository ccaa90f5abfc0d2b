"""A fake of the routes of a KFP server that submissions use, below /apis/v2beta1/.

It checks requests and runs nothing. The body of each request must fit the model of kfp_server_api for its route. A
spec must parse as kfp's own protocol buffer, have images by digest and resources that agree, and accept the given
parameters; settings for Kubernetes must parse as that of kfp-kubernetes. With workers=rayjob, the PPO step must have
the image of the nodes, and the service account must be the one that may start RayJobs; variables for images must be
digests, with or without rayjob. A run named "notified" must name the Secret with the webhook's URL. Each poll of a run
completes one more task; its tasks are listed as nodes of an Argo workflow (argo_nodes.py). With preset=tiny its
PPO fails twice, until the run is retried; in a run named "unscheduled" PPO's pod is pending for some polls. A canceled
run is FAILED in the end, as on a real server. A run named "lossy" loses two answers of three, one named "gone" all but
the first, and one named "forbidden" must not be polled. A pipeline version named "broken" is refused. Logs of a run
named "profiled" tell what its steps cost.

Lists have the newest first, and PAGE objects in an answer.

Logs of pods are below /apis/v1alpha1, on the server "interface" below /k8s, as are pods.

A first component of the path chooses another server, for example http://127.0.0.1:PORT/login: see SERVERS. GET
/requests returns the requests with a body so far. Runs in the environment `pipelines`, prints its port, and ends when
its stdin is closed.
"""

from __future__ import annotations

import email
import json
import re
import sys
from datetime import timedelta
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kfp_server_api
import yaml
from google.protobuf import json_format
from kfp.compiler import compiler_utils
from kfp.kubernetes import kubernetes_executor_config_pb2
from kfp.pipeline_spec import pipeline_spec_pb2

from tests.servers.argo_nodes import BEGIN, LOG, Workflow
from tests.servers.http_server import JsonHandler, serving

TASKS = ("corpus", "toolchain-training", "trace", "vocab", "warmstart", "ppo", "evaluation")
VERDICTS = {"evaluation": "2026-11-29T08:05:02.804Z INFO verdict on the modules: better (1.2%)\n"}
"""Task -> the end of its log."""
COST = (
    "cost: {}.0 s on 8 processors, {} processor seconds, 1843.0 MB of memory at most, "
    "object storage: 120.5 MB read, 3.2 MB written"
)
"""Of a step in the log of a run named "profiled"; vocab's has none."""
EXPERIMENTS: list[dict[str, Any]] = []
RUNS: dict[str, dict[str, Any]] = {}
PIPELINES: dict[str, dict[str, Any]] = {}
SCHEDULES: dict[str, dict[str, Any]] = {}
REQUESTS: list[dict[str, Any]] = []
PAGE = 3
"""Objects in an answer, however many are asked for."""
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
SINCE_2_16 = (b"securityContext", b"subPath", b"literals")
"""Fields of kubernetes_executor_config.proto and pipeline_spec.proto that servers before 2.16 refuse."""
SERVERS = {
    "": "version 2.17.0, as its API server answers",
    "interface": "version 2.15.0, behind the user interface, which answers to /healthz itself",
    "built": "built by hand, without a version",
    "multi": "several users; the one of the namespace `team` has the token `good`",
    "v1": "version 1.8.5",
    "old": "version 2.5.0, the last that refuses a task's final status",
    "starting": "a user interface whose API server does not answer",
    "expired": "every token is refused",
    "locked": "no permission for anything",
    "login": "every answer is a page to log in",
    "session": "every answer but /healthz is a page to log in",
    "redirect": "every request is sent to a page to log in",
    "other": "another web server",
}


def check_model(value: Any, kind: str, where: str) -> None:
    """Raise ValueError unless `value` fits a type of kfp_server_api: a model, list[T], dict(str, T) or a plain type."""
    if nested := re.fullmatch(r"list\[(.+)\]", kind):
        for item in value:
            check_model(item, nested[1], where)
    elif nested := re.fullmatch(r"dict\(str, (.+)\)", kind):
        for key, item in value.items():
            check_model(item, nested[1], f"{where}.{key}")
    elif kind == "object":
        return
    elif model := getattr(kfp_server_api, kind, None):
        if hasattr(model, "allowable_values") and not model.openapi_types:
            if value not in model.allowable_values:
                raise ValueError(f"{where}: {value!r} is not one of {model.allowable_values}")
            return
        types = {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}
        for key, item in value.items():
            if key not in types:
                raise ValueError(f"{where}: {kind} has no field {key}")
            check_model(item, types[key], f"{where}.{key}")
    elif not isinstance(value, {"str": str, "int": int, "bool": bool, "datetime": str}[kind]):
        raise ValueError(f"{where}: {value!r} is no {kind}")


def checked_pipeline(document: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the parsed PipelineSpec, and settings for Kubernetes by executor. ValueError or ParseError if invalid."""
    plain = document.get("pipeline_spec", document)
    spec = json_format.ParseDict(plain, pipeline_spec_pb2.PipelineSpec())
    for name, executor in plain["deploymentSpec"]["executors"].items():
        container = executor["container"]
        if not DIGEST.search(container["image"]):
            raise ValueError(f"{name}: the image {container['image']} is no digest")
        for variable in container.get("env", ()):
            if "IMAGE" in variable["name"] and not DIGEST.search(variable["value"]):
                raise ValueError(f"{name}: {variable['name']}={variable['value']} is no digest")
        for key, value in container.get("resources", {}).items():
            if key.startswith("resource"):
                old = container["resources"][key[len("resource")].lower() + key[len("resource") + 1 :]]
                read = compiler_utils._cpu_to_float if "Cpu" in key else compiler_utils._memory_to_float
                if abs(read(value) - old) > 1e-6:
                    raise ValueError(f"{name}: {key} is {value}, but the number {old}")
    platform = json_format.ParseDict(document.get("platform_spec", {}), pipeline_spec_pb2.PlatformSpec())
    configs = {
        label: json_format.MessageToDict(config)
        for label, config in platform.platforms["kubernetes"].deployment_spec.executors.items()
    }
    for label, config in configs.items():
        if label not in plain["deploymentSpec"]["executors"]:
            raise ValueError(f"settings for {label}, which is no executor")
        json_format.ParseDict(config, kubernetes_executor_config_pb2.KubernetesExecutorConfig())
    return spec, configs


def check_run(body: dict[str, Any]) -> dict[str, Any]:
    """Return the given parameters of a run or recurring run. ValueError for an invalid one."""
    document = body["pipeline_spec"] if "pipeline_spec" in body else stored(**body["pipeline_version_reference"])
    spec, configs = checked_pipeline(document)
    declared = spec.root.input_definitions.parameters
    parameters: dict[str, Any] = body.get("runtime_config", {}).get("parameters", {})
    for name, value in parameters.items():
        if name not in declared:
            raise ValueError(f"unknown parameter {name}")
        if declared[name].literals and value not in [literal.string_value for literal in declared[name].literals]:
            raise ValueError(f"input parameter {name} value does not match any of the allowed literal values")
    if parameters.get("workers", "").startswith("rayjob"):
        container = document.get("pipeline_spec", document)["deploymentSpec"]["executors"]["exec-ppo"]["container"]
        if "MLGO_CLUSTER_IMAGE" not in [variable["name"] for variable in container["env"]]:
            raise ValueError("exec-ppo: nothing names the image of Ray's nodes")
        if body.get("service_account") != "mlgo-steps":
            raise ValueError(f"{body.get('service_account')!r} may not start RayJobs")
    if body["display_name"] == "notified":
        secrets = configs.get("exec-finish", {}).get("secretAsEnv", ())
        if [secret["secretName"] for secret in secrets] != ["mlgo-notify"]:
            raise ValueError("no Secret is named")
    return parameters


def stored(pipeline_id: str, pipeline_version_id: str) -> dict[str, Any]:
    """Return the pipeline of a version. KeyError or StopIteration if there is none."""
    versions = PIPELINES[pipeline_id]["versions"]
    return next(version["document"] for version in versions if version["pipeline_version_id"] == pipeline_version_id)


def created(body: dict[str, Any]) -> dict[str, Any]:
    """Return the run that a request creates; ValueError for an invalid one, for which KFP would answer 400."""
    parameters = check_run(body)
    run = {
        "run_id": f"run-{len(RUNS) + 1}",
        "display_name": body["display_name"],
        "experiment_id": body.get("experiment_id", "e-0"),
        "state": "RUNNING",
        "history": ["RUNNING"],
        "canceling": 0,
        "workflow": None,
        "looked": 0,
        "asked": 0,
        "fails": parameters.get("preset") == "tiny",
        "source": {
            key: body[key]
            for key in ("pipeline_spec", "pipeline_version_reference", "runtime_config", "service_account")
            if key in body
        },
    }
    RUNS[run["run_id"]] = run
    return run


def scheduled(body: dict[str, Any]) -> dict[str, Any]:
    """Return the recurring run that a request creates. The API server reads six fields, although cron has five."""
    check_run(body)
    if len(body["trigger"]["cron_schedule"]["cron"].split()) != 6 or not 1 <= int(body["max_concurrency"]) <= 10:
        raise ValueError("invalid schedule")
    identity = f"schedule-{len(SCHEDULES) + 1}"
    SCHEDULES[identity] = {
        "recurring_run_id": identity,
        "status": "ENABLED",
        **{key: body[key] for key in ("display_name", "trigger", "max_concurrency", "no_catchup", "experiment_id")},
    }
    return SCHEDULES[identity]


def looked_at(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run as the API answers it, in which one more task has ended."""
    run["looked"] += 1
    done = TASKS[: run["looked"]]
    states: dict[str, Any] = dict.fromkeys(done, "SUCCEEDED") | ({"toolchain-training": "CACHED"} if done[1:] else {})
    running = TASKS[len(done) : len(done) + 1]
    ended = ""
    if run["state"] == "CANCELING":
        run["canceling"] += 1
        running, ended = (), "FAILED" if run["canceling"] > 1 else ""
    elif run["display_name"] == "unscheduled" and "ppo" in done and run["looked"] < 30:
        states = {name: states[name] for name in TASKS[: TASKS.index("ppo")]} | {"ppo": ["PENDING"]}
        running = ()
    elif run["fails"] and "ppo" in done:
        states = {name: states[name] for name in TASKS[: TASKS.index("ppo")]} | {"ppo": ["FAILED", "FAILED"]}
        ended = "FAILED"
    elif len(done) == len(TASKS):
        ended = "SUCCEEDED"
    states |= dict.fromkeys(running, "RUNNING")
    if ended:
        states["finish"] = "SUCCEEDED"
        run["state"] = ended
    if run["history"][-1] != run["state"]:
        run["history"].append(run["state"])
    run["workflow"] = Workflow(spec_of(run), states, ended)
    return described(run)


def described(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run as the API answers it. Run N begins N minutes after BEGIN; one that has ended took 90 minutes."""
    begun = BEGIN + timedelta(minutes=int(run["run_id"].removeprefix("run-")))
    ended = run["state"] in ("SUCCEEDED", "FAILED")
    response = {
        "run_id": run["run_id"],
        "display_name": run["display_name"],
        "experiment_id": run["experiment_id"],
        "storage_state": "ARCHIVED" if run["display_name"] == "archived" else "AVAILABLE",
        "created_at": begun.isoformat(),
        "finished_at": (begun + timedelta(minutes=90)).isoformat() if ended else "1970-01-01T00:00:00Z",
        "state": run["state"],
        "state_history": [{"update_time": BEGIN.isoformat(), "state": state} for state in run["history"]],
        "run_details": {"task_details": run["workflow"].details(run["run_id"]) if run["workflow"] else []},
        **run["source"],
    }
    check_model(response, "V2beta1Run", "runs")
    return response


def spec_of(run: dict[str, Any]) -> dict[str, Any]:
    """Return the PipelineSpec of a run."""
    source = run["source"]
    document: dict[str, Any] = source.get("pipeline_spec") or stored(**source["pipeline_version_reference"])
    spec: dict[str, Any] = document.get("pipeline_spec", document)
    return spec


def retried(run: dict[str, Any]) -> None:
    """Answer as GenerateRetryExecution. ValueError unless the run has failed."""
    if run["state"] != "FAILED":
        raise ValueError("Workflow must be Failed/Error to retry")
    run |= {"state": "RUNNING", "fails": False, "canceling": 0, "looked": 0}


class Handler(JsonHandler):
    def do_GET(self) -> None:
        if self.path == "/requests":
            self.send_json(REQUESTS)
        elif match := re.fullmatch(r"/apis/v1alpha1/runs/(run-\d+)/nodes/([^/]+)/log", self.path):
            self._log(match[1], match[2])
        elif match := re.fullmatch(r"/interface/k8s/pod(/logs)?\?(.*)", self.path):
            query = {key: values[0] for key, values in parse_qs(match[2]).items()}
            if match[1]:
                self._log(query["runid"], query["podname"])
            else:
                self._pod(query["podname"], query["podnamespace"])
        elif re.match(r"/interface/apis/v1alpha1/", self.path):
            self._page(200)  # the interface answers what it does not know with its own page
        elif route := self._route():
            self._get(route)

    def _get(self, route: str) -> None:
        if route == "healthz":
            self._health()
        elif route == "experiments" and "filter" not in self.query:
            self._send_page("experiments", EXPERIMENTS[::-1], "V2beta1ListExperimentsResponse")
        elif route == "experiments":
            self.send_json({"experiments": self._named(EXPERIMENTS)})
        elif route == "recurringruns":
            self._send_page("recurringRuns", list(SCHEDULES.values())[::-1], "V2beta1ListRecurringRunsResponse")
        elif route == "pipelines":
            self.send_json({"pipelines": self._named(PIPELINES.values())})
        elif match := re.fullmatch(r"pipelines/(p-\d+)/versions", route):
            self.send_json({"pipeline_versions": self._versions(PIPELINES[match[1]]["versions"])})
        elif match := re.fullmatch(r"pipelines/(p-\d+)/versions/(v-.+)", route):
            document = stored(match[1], match[2])
            self.send_json({"pipeline_id": match[1], "pipeline_version_id": match[2], "pipeline_spec": document})
        elif route == "runs" and "filter" not in self.query:
            asked = self.query.get("experiment_id")
            runs = [run for run in RUNS.values() if asked in (None, run["experiment_id"])]
            self._send_page("runs", [described(run) for run in runs[::-1]], "V2beta1ListRunsResponse")
        elif route == "runs":
            of_experiment = [run for run in RUNS.values() if run["experiment_id"] == self.query["experiment_id"]]
            self.send_json({"runs": self._named(of_experiment)} if of_experiment else {})
        elif route.startswith("runs/") and route.removeprefix("runs/") in RUNS:
            self._look_at(RUNS[route.removeprefix("runs/")])
        else:
            self.send_json({"message": f"no route {self.path}"}, 404)

    def _route(self) -> str:
        """Return the route below the API, empty if this server has answered in another way."""
        path = urlsplit(self.path).path
        self.query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        self.server_kind, _slash, api = path[1:].partition("apis/")
        self.server_kind = self.server_kind.strip("/")
        version, _slash, route = api.partition("/")
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        kind = self.server_kind
        if kind == "expired" or (kind == "multi" and token != "good"):
            self.send_json({"message": "Unauthenticated"}, 401)
        elif kind == "locked":
            self.send_json({"message": "User 'x' is not authorized to list experiments"}, 403)
        elif kind == "login" or (kind == "session" and route != "healthz"):
            self._page(200)
        elif kind == "redirect":
            self.send_response(302)
            self.send_header("Location", "/dex/auth?state=s3cret")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif kind == "other":
            self._page(404)
        elif kind == "v1" and version == "v1beta1" and route == "healthz":
            self.send_json({"commit_sha": "1", "tag_name": "1.8.5", "multi_user": False})
        elif kind == "v1" or version != "v2beta1":
            self.send_json({"message": "Not Found"}, 404)
        elif kind == "multi" and self.query.get("namespace", "team") != "team":
            self.send_json({"message": "not your namespace"}, 403)
        else:
            return route
        return ""

    def _health(self) -> None:
        version = {"old": "2.5.0", "built": "unknown"}.get(self.server_kind, "2.17.0")
        health: dict[str, Any] = {"tag_name": version, "multi_user": self.server_kind == "multi"}
        if self.server_kind == "interface":
            health = {"frontendTagName": "2.15.0", "apiServerTagName": "2.15.0", "multi_user": False}
        if self.server_kind == "starting":
            health = {"frontendTagName": "2.17.0", "apiServerReady": False}
        self.send_json(health)

    def _named(self, resources: Any) -> list[dict[str, Any]]:
        """Return the objects that the request's filter and namespace select."""
        (predicate,) = json.loads(self.query["filter"])["predicates"]
        assert predicate["key"] == "display_name" and predicate["operation"] == 1
        return [
            item
            for item in resources
            if item["display_name"] == predicate["stringValue"] and item.get("namespace") == self.query.get("namespace")
        ]

    def _send_page(self, key: str, resources: list[dict[str, Any]], model: str) -> None:
        """Send the part of a list that a request asks for."""
        if self.query["sort_by"] != "created_at desc" or int(self.query["page_size"]) > 200:
            raise ValueError(f"unexpected query {self.query}")
        start = int(self.query.get("page_token", 0))
        document: dict[str, Any] = {"total_size": len(resources)}
        document |= {key: resources[start : start + PAGE]} if resources else {}
        document |= {"next_page_token": str(start + PAGE)} if len(resources) > start + PAGE else {}
        check_model(document, model, key)
        self.send_json(document)

    def _versions(self, versions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the versions that the filter selects, or the newest one."""
        newest = {"page_size": "1", "sort_by": "created_at desc"}
        selected = self._named(versions) if "filter" in self.query else versions[-1:] if self.query == newest else None
        if selected is None:
            raise ValueError(f"unexpected query {self.query}")
        return [{key: value for key, value in version.items() if key != "document"} for version in selected]

    def _look_at(self, run: dict[str, Any]) -> None:
        run["asked"] += 1
        kind = run["display_name"]
        if kind == "forbidden":
            self.send_json({"message": "no access to runs"}, 403)
        elif (kind == "lossy" and run["asked"] % 3 == 1) or (kind == "gone" and run["asked"] > 1):
            self.send_json({"message": "no healthy upstream"}, 503)
        elif kind == "lossy" and run["asked"] % 3 == 2:
            self.close_connection = True  # without an answer
        else:
            self.send_json(looked_at(run))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not (route := self._route()):
            return
        try:
            if route == "pipelines/upload_version":
                self._upload_version(content)
                return
            if self.server_kind == "interface" and (newer := [name for name in SINCE_2_16 if name in content]):
                raise ValueError(f"failed to unmarshal kubernetes config: unknown field {newer[0]!r}")
            body = json.loads(content or b"null")
            REQUESTS.append({"route": route, "body": body, "token": self.headers.get("Authorization")})
            self._post(route, body)
        except (ValueError, KeyError, json_format.ParseError) as error:
            self.send_json({"message": f"invalid run: {error}"}, 400)

    def _post(self, route: str, body: Any) -> None:
        if match := re.fullmatch(r"runs/(run-\d+):terminate", route):
            RUNS[match[1]]["state"] = "CANCELING"
            self.send_json({})
        elif match := re.fullmatch(r"runs/(run-\d+):retry", route):
            retried(RUNS[match[1]])
            self.send_json({})
        elif match := re.fullmatch(r"recurringruns/(schedule-\d+):(enable|disable)", route):
            SCHEDULES[match[1]]["status"] = f"{match[2].upper()}D"
            self.send_json({})
        elif route == "experiments":
            check_model(body, "V2beta1Experiment", route)
            EXPERIMENTS.append({**body, "experiment_id": f"e-{len(EXPERIMENTS) + 1}"})
            self.send_json(EXPERIMENTS[-1])
        elif route == "runs":
            check_model(body, "V2beta1Run", route)
            self.send_json(created(body))
        elif route == "recurringruns":
            check_model(body, "V2beta1RecurringRun", route)
            self.send_json(scheduled(body))
        elif route == "pipelines":
            check_model(body, "V2beta1Pipeline", route)
            pipeline = {**body, "pipeline_id": f"p-{len(REQUESTS)}", "versions": []}
            PIPELINES[pipeline["pipeline_id"]] = pipeline
            self.send_json({key: value for key, value in pipeline.items() if key != "versions"})
        else:
            self.send_json({"message": f"no route {self.path}"}, 404)

    def _upload_version(self, content: bytes) -> None:
        """Answer as backend/src/apiserver/server/pipeline_upload_server.go."""
        head = f"Content-Type: {self.headers['Content-Type']}\n\n".encode()
        message: Any = email.message_from_bytes(head + content)
        (part,) = message.get_payload()
        spec, *platform = yaml.safe_load_all(part.get_payload(decode=True))
        body = {"pipeline_spec": spec, "platform_spec": platform[0]} if platform else {"pipeline_spec": spec}
        REQUESTS.append({"route": "pipelines/upload_version", "body": body, "query": self.query})
        checked_pipeline(body)
        pipeline, name = PIPELINES[self.query["pipelineid"]], self.query["name"]
        if name == "broken" or name in [version["display_name"] for version in pipeline["versions"]]:
            self.send_json({"error_message": "Failed to create a pipeline version", "error_details": ""}, 409)
            return
        version = {"pipeline_id": pipeline["pipeline_id"], "pipeline_version_id": f"v-{name}", "display_name": name}
        pipeline["versions"].append(version | {"document": body})
        self.send_json(version)

    def do_DELETE(self) -> None:
        if not (route := self._route()):
            return
        kind, _slash, identity = route.partition("/")
        if kind == "recurringruns" and self.query != {"propagation_policy": "ORPHAN"}:
            raise ValueError("Kubernetes would delete the workflows of running runs, too")
        del {"pipelines": PIPELINES, "recurringruns": SCHEDULES}[kind][identity]
        self.send_json({})

    def _log(self, run_id: str, pod: str) -> None:
        """Answer as run_log_server.go, which sends the status before it looks for the log."""
        pods = RUNS[run_id]["workflow"].pods if run_id in RUNS else {}
        name = next((name for name, pod_name in pods.items() if pod_name == pod), "")
        end = VERDICTS.get(name, "")
        if RUNS.get(run_id, {}).get("display_name") == "profiled" and name != "vocab":
            seconds = 60 + TASKS.index(name)
            end += f"2026-11-29T08:05:03.804Z INFO {COST.format(seconds, 2.1 * seconds)}\n"
        text = LOG.format("".join(f"{name}: line {number}\n" for number in range(100)) + end)
        error = json.dumps({"error_message": f"Failed to read logs for run {run_id}", "error_details": ""})
        self.send((text if name else error).encode(), "text/plain", 200)

    def _pod(self, pod: str, namespace: str) -> None:
        workflows = [run["workflow"] for run in RUNS.values() if run["workflow"]]
        if namespace != "kubeflow" or pod not in {name for workflow in workflows for name in workflow.pods.values()}:
            self.send(b"Could not get pod", "text/html; charset=utf-8", 500)
            return
        message = "0/1 nodes are available: 1 Insufficient cpu."
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self.send_json({"kind": "Pod", "status": {"phase": "Pending", "conditions": [unscheduled]}})

    def _page(self, status: int) -> None:
        self.send(b"<!doctype html><title>Log in</title>", "text/html; charset=utf-8", status)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        print(server.server_port, flush=True)
        sys.stdin.read()
