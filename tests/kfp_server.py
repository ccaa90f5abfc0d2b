"""A fake of the routes of a KFP server that a submission uses: /apis/v2beta1/{healthz,experiments,runs}.

It checks requests and runs nothing. A spec must parse as kfp's own protocol buffer, have images by digest, and accept
the given parameters. With workers=rayjob, the PPO step must have the image of the nodes, and the service account must
be the one that may start RayJobs; variables for images must be digests, with or without rayjob. A run named "notified"
must name the Secret with the webhook's URL. Each poll of a run completes one more task; with preset=tiny its PPO fails.
A run named "lossy" loses two answers of three, one named "gone" all but the first, and one named "forbidden" must not
be polled. Runs in the environment `pipelines`, prints its port, and ends when its stdin is closed.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

TASKS = ("corpus", "toolchain-training", "trace", "vocab", "warmstart", "ppo", "evaluation")
EXPERIMENTS: list[dict[str, Any]] = []
RUNS: dict[str, dict[str, Any]] = {}
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def created(body: dict[str, Any]) -> dict[str, Any]:
    """Return the run that a request creates; ValueError for an invalid one, for which KFP would answer 400."""
    document = body["pipeline_spec"]
    spec = json_format.ParseDict(document.get("pipeline_spec", document), pipeline_spec_pb2.PipelineSpec())
    for name, executor in document.get("pipeline_spec", document)["deploymentSpec"]["executors"].items():
        if not DIGEST.search(executor["container"]["image"]):
            raise ValueError(f"{name}: the image {executor['container']['image']} is no digest")
        for variable in executor["container"].get("env", ()):
            if "IMAGE" in variable["name"] and not DIGEST.search(variable["value"]):
                raise ValueError(f"{name}: {variable['name']}={variable['value']} is no digest")
    known = spec.root.input_definitions.parameters
    given = body.get("runtime_config", {}).get("parameters", {})
    for name in given:
        if name not in known:
            raise ValueError(f"unknown parameter {name}")
    if given.get("workers", "").startswith("rayjob"):
        container = document.get("pipeline_spec", document)["deploymentSpec"]["executors"]["exec-ppo"]["container"]
        if "MLGO_CLUSTER_IMAGE" not in [variable["name"] for variable in container["env"]]:
            raise ValueError("exec-ppo: nothing names the image of Ray's nodes")
        if body.get("service_account") != "mlgo-steps":
            raise ValueError(f"{body.get('service_account')!r} may not start RayJobs")
    if body["display_name"] == "notified":
        platforms = json_format.ParseDict(document.get("platform_spec", {}), pipeline_spec_pb2.PlatformSpec()).platforms
        config = json_format.MessageToDict(platforms["kubernetes"].deployment_spec.executors["exec-finish"])
        if [secret["secretName"] for secret in config.get("secretAsEnv", ())] != ["mlgo-notify"]:
            raise ValueError("no Secret is named")
    run = {
        "run_id": f"run-{len(RUNS) + 1}",
        "display_name": body["display_name"],
        "state": "RUNNING",
        "looked": 0,
        "asked": 0,
        "root": body.get("runtime_config", {}).get("pipeline_root", ""),
        "fails": given.get("preset") == "tiny",
    }
    RUNS[run["run_id"]] = run
    return run


def looked_at(run: dict[str, Any]) -> dict[str, Any]:
    run["looked"] += 1
    done = TASKS[: run["looked"]]
    states = dict.fromkeys(done, "SUCCEEDED")
    run["state"] = "RUNNING"
    if len(done) == len(TASKS):
        run["state"] = "SUCCEEDED"
    if run["fails"] and "ppo" in done:
        states["ppo"] = run["state"] = "FAILED"
    details = [{"display_name": name, "state": state} for name, state in states.items()]
    return {"run_id": run["run_id"], "state": run["state"], "run_details": {"task_details": details}}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        route = self.path.partition("?")[0].removeprefix("/apis/v2beta1/")
        if route == "healthz":
            self._answer({"multi_user": False})
        elif route == "experiments":
            self._answer({"experiments": EXPERIMENTS})
        elif route.startswith("runs/") and route.removeprefix("runs/") in RUNS:
            self._look_at(RUNS[route.removeprefix("runs/")])
        else:
            self._answer({"message": f"no route {self.path}"}, 404)

    def _look_at(self, run: dict[str, Any]) -> None:
        run["asked"] += 1
        kind = run["display_name"]
        if kind == "forbidden":
            self._answer({"message": "no access to runs"}, 403)
        elif (kind == "lossy" and run["asked"] % 3 == 1) or (kind == "gone" and run["asked"] > 1):
            self._answer({"message": "no healthy upstream"}, 503)
        elif kind == "lossy" and run["asked"] % 3 == 2:
            self.close_connection = True  # without an answer
        else:
            self._answer(looked_at(run))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith("/apis/v2beta1/experiments"):
            EXPERIMENTS.append({"experiment_id": "e-1", "display_name": body["display_name"]})
            self._answer(EXPERIMENTS[-1])
        elif self.path.startswith("/apis/v2beta1/runs"):
            try:
                self._answer(created(body))
            except (ValueError, KeyError, json_format.ParseError) as error:
                self._answer({"message": f"invalid run: {error}"}, 400)
        else:
            self._answer({"message": f"no route {self.path}"}, 404)

    def _answer(self, document: dict[str, Any], status: int = 200) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: Any) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
