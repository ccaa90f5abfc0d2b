"""Submits the compiled pipeline to a KFP server and follows the run. Needs the environment `pipelines`."""

from __future__ import annotations

import json
import re
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from components.console import UserError, say
from components.console.number_types import environment_number
from components.launcher.images import CLUSTER, CLUSTER_VARIABLE, IMAGES, STEPS
from components.launcher.notify import NOTIFY_VARIABLE
from pipelines.images import Image
from pipelines.polling import TIMEOUT_S, NoAnswer, look, may_recover, run_goes_on
from pipelines.spec import load_spec, parameter_values, with_images

POLL_S = environment_number("MLGO_POLL_S", 10)
NOTIFY_KEY = "url"
"""Of the Secret that --notify-secret names."""
_SECRET = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ENDED = {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"}
_FOLLOWING = {
    "cpuLimit": 1.0, "cpuRequest": 0.1, "memoryLimit": 2.0, "memoryRequest": 0.5,
    "resourceCpuLimit": "1", "resourceCpuRequest": "100m",
    "resourceMemoryLimit": "2G", "resourceMemoryRequest": "500M",
}  # fmt: skip
"""Of a step that waits while a Ray cluster trains. KFP reads the texts, older ones the numbers: CPUs and GB."""


def ready_spec(pipeline: Path, images: Mapping[str, Image], ray: bool = False) -> dict[str, Any]:
    """The PipelineSpec with the digests of pushed images.

    Args:
        images: of pipelines.images.read_images.
        ray: whether a step starts a Ray cluster, and needs the image of its nodes.

    Raises:
        UserError: an image was not pushed, so that no cluster has it.
    """
    references = {}
    for key in (*STEPS, CLUSTER) if ray else STEPS:
        if key not in images or "@sha256:" not in images[key].reference:
            raise UserError(
                f"the image {key} has no digest in a registry, and a cluster could not pull it",
                f"mlgo images build{' --all' if ray else ''} --registry HOST/PROJECT/REPOSITORY && mlgo images push",
            )
        references[IMAGES[key]] = images[key].reference
    spec = with_images(load_spec(pipeline), references)
    for executor in spec["deploymentSpec"]["executors"].values() if ray else ():
        container = executor.get("container", {})
        if any(entry["name"] == CLUSTER_VARIABLE for entry in container.get("env", ())):
            container["resources"] = dict(_FOLLOWING)
    return spec


def notify_settings(spec: Mapping[str, Any], secret: str) -> dict[str, Any]:
    """KFP's PlatformSpec by which the step that tells how the pipeline ended gets the webhook's URL.

    Args:
        secret: name of a Kubernetes Secret with the key NOTIFY_KEY, in the namespace of the steps.

    Raises:
        UserError: no name of a Secret, or the pipeline has no such step.
    """
    if len(secret) > 253 or not _SECRET.fullmatch(secret):
        # Not in its words: a URL given by mistake is the secret itself.
        raise UserError(
            "--notify-secret is not the name of a Kubernetes Secret",
            f"kubectl create secret generic mlgo-notify --from-file {NOTIFY_KEY}=FILE, and --notify-secret mlgo-notify",
        )
    tells = [
        label for label, executor in spec["deploymentSpec"]["executors"].items()
        if "components.launcher.finish" in executor.get("container", {}).get("command", ())
    ]  # fmt: skip
    if not tells:
        raise UserError("no step of the pipeline tells how it ended", "leave --notify-secret out")
    variable = {"secretKey": NOTIFY_KEY, "envVar": NOTIFY_VARIABLE}
    config = {"secretAsEnv": [{"secretName": secret, "keyToEnv": [variable]}]}
    executors = {label: config for label in tells}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}


def submit(
    spec: Mapping[str, Any], given: Mapping[str, str], host: str, pipeline_root: str, name: str, account: str = "",
    platform: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """Starts a run on the KFP server at `host`; returns its id.

    Args:
        account: Kubernetes' service account of its steps; empty for the server's own.
        platform: of `notify_settings`; None for nothing to be told.

    Raises:
        UserError: a parameter is wrong, the server does not answer, or rejects the run (with its words).
    """
    parameters = {key: value for key, value in parameter_values(spec, given).items() if key in given}
    with _explained(host), tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch, f"{spec['pipelineInfo']['name']}.yaml")
        documents = [dict(spec), *([dict(platform)] if platform else [])]
        package.write_text(yaml.safe_dump_all(documents, sort_keys=True))
        run = _client(host).create_run_from_pipeline_package(
            str(package), arguments=parameters, run_name=name, experiment_name=spec["pipelineInfo"]["name"],
            pipeline_root=pipeline_root or None, service_account=account or None,
        )  # fmt: skip
        return str(run.run_id)


def follow(run_id: str, host: str, poll_s: float = POLL_S) -> str:
    """Tells each step's state as it changes until the run ends; returns the run's state.

    Raises:
        UserError: the run did not succeed, or the server does not answer any more (for pipelines.polling.PATIENCE_S).
    """
    told: dict[str, str] = {}
    where = run_page(host, run_id)
    clients: list[Any] = []

    def ask() -> Any:
        with _explained(host):
            if not clients:
                clients.append(_client(host))
            # Client.get_run has no time-out.
            return clients[0]._run_api.run_service_get_run(run_id=run_id, _request_timeout=TIMEOUT_S)

    with run_goes_on(run_id, where):
        while True:
            run = look(ask, run_id, where)
            details = run.run_details.task_details if run.run_details else None
            for task in details or []:
                if task.state and told.get(task.display_name) != task.state:
                    told[task.display_name] = task.state
                    say(f"[{task.display_name}] {task.state.lower()}")
            if run.state in _ENDED:
                break
            time.sleep(poll_s)
    if run.state != "SUCCEEDED":
        failed = sorted(name for name, state in told.items() if state == "FAILED")
        what = f"step {', '.join(failed)} failed" if failed else f"it is {run.state.lower()}"
        raise UserError(f"the run {run_id} did not succeed: {what}", f"see its log at {where}")
    return str(run.state)


def run_page(host: str, run_id: str) -> str:
    """Where a browser shows the run."""
    return f"{host.rstrip('/')}/#/runs/details/{run_id}"


def _client(host: str) -> Any:
    from kfp import Client

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions of KFP before 2
        return Client(host=host)


@contextmanager
def _explained(host: str) -> Iterator[None]:
    """Turns the errors of kfp's client and of the connection into UserErrors; NoAnswer where asking again may help."""
    from kfp_server_api.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        kind = NoAnswer if may_recover(error.status or 0) else UserError
        raise kind(
            f"KFP at {host} refuses: {error.status} {_message(error)}", "see its message; is the address right?"
        ) from None
    except TimeoutError as error:
        problem = f"KFP at {host} does not answer well: {error}"
        raise NoAnswer(problem, "is this the address of a KFP server?") from None
    except HTTPError as error:
        cause = getattr(error, "reason", None) or error
        raise NoAnswer(
            f"KFP at {host} does not answer: {cause}",
            "check the address, or kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80",
        ) from None


def _message(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)
