"""Submit the compiled pipeline to a KFP server and follow the run; needs the environment `pipelines`."""

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

from components.core.console import UserError, say
from components.core.console.number_types import environment_number
from components.core.launcher.images import CLUSTER, CLUSTER_VARIABLE, IMAGES, STEPS
from components.core.launcher.notify import NOTIFY_VARIABLE
from pipelines.images import Image
from pipelines.spec import load_spec, parameter_values, with_images
from pipelines.submit.polling import TIMEOUT_S, NoAnswer, may_recover, poll, report_run_continues

POLL_S = environment_number("MLGO_POLL_S", 10)
NOTIFY_KEY = "url"
"""Key of the webhook's URL in the Secret that --notify-secret names."""
_SECRET = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ENDED = {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"}
_FOLLOWING = {
    "cpuLimit": 1.0,
    "cpuRequest": 0.1,
    "memoryLimit": 2.0,
    "memoryRequest": 0.5,
    "resourceCpuLimit": "1",
    "resourceCpuRequest": "100m",
    "resourceMemoryLimit": "2G",
    "resourceMemoryRequest": "500M",
}
"""Resources of a step that only waits while a Ray cluster trains. KFP reads the strings, older versions the numbers
(CPUs and GB)."""


def ready_spec(pipeline: Path, images: Mapping[str, Image], ray: bool = False) -> dict[str, Any]:
    """Return the PipelineSpec with the digests of pushed images.

    Args:
        images: from pipelines.images.read_images.
        ray: whether a step starts a Ray cluster and needs the image of its nodes.

    Raises:
        UserError: an image was not pushed, so a cluster could not pull it.
    """
    references = {}
    for key in (*STEPS, CLUSTER) if ray else STEPS:
        if key not in images or "@sha256:" not in images[key].reference:
            raise UserError(
                f"the image {key} has no digest in a registry, so a cluster cannot pull it",
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
    """Return a KFP PlatformSpec that passes the webhook's URL to the step that reports how the pipeline ended.

    Args:
        secret: name of a Kubernetes Secret with the key NOTIFY_KEY, in the namespace of the steps.

    Raises:
        UserError: `secret` is not a valid name of a Secret, or the pipeline has no such step.
    """
    if len(secret) > 253 or not _SECRET.fullmatch(secret):
        # Do not print its value: if a URL was passed by mistake, it is the secret itself.
        raise UserError(
            "--notify-secret is not the name of a Kubernetes Secret",
            f"kubectl create secret generic mlgo-notify --from-file {NOTIFY_KEY}=FILE, and --notify-secret mlgo-notify",
        )
    notifying = [
        label
        for label, executor in spec["deploymentSpec"]["executors"].items()
        if "components.core.launcher.finish" in executor.get("container", {}).get("command", ())
    ]
    if not notifying:
        raise UserError("no step of the pipeline reports how it ended", "leave --notify-secret out")
    variable = {"secretKey": NOTIFY_KEY, "envVar": NOTIFY_VARIABLE}
    config = {"secretAsEnv": [{"secretName": secret, "keyToEnv": [variable]}]}
    executors = {label: config for label in notifying}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}


def submit(
    spec: Mapping[str, Any],
    given: Mapping[str, str],
    host: str,
    pipeline_root: str,
    name: str,
    account: str = "",
    platform: Mapping[str, Any] | None = None,
) -> str:
    """Start a run on the KFP server at `host`; return its ID.

    Args:
        account: Kubernetes service account of its steps; empty for the server's default.
        platform: from `notify_settings`; None for no notification.

    Raises:
        UserError: a parameter is invalid, or the server does not answer or rejects the run (with its message).
    """
    parameters = {key: value for key, value in parameter_values(spec, given).items() if key in given}
    with _translate_kfp_errors(host), tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch, f"{spec['pipelineInfo']['name']}.yaml")
        documents = [dict(spec), *([dict(platform)] if platform else [])]
        package.write_text(yaml.safe_dump_all(documents, sort_keys=True))
        run = _client(host).create_run_from_pipeline_package(
            str(package),
            arguments=parameters,
            run_name=name,
            experiment_name=spec["pipelineInfo"]["name"],
            pipeline_root=pipeline_root or None,
            service_account=account or None,
        )
        return str(run.run_id)


def follow(run_id: str, host: str, poll_s: float = POLL_S) -> str:
    """Print each step's state as it changes until the run ends; return the run's state.

    Raises:
        UserError: the run did not succeed, or the server did not answer for polling.PATIENCE_S.
    """
    shown_states: dict[str, str] = {}
    where = run_page(host, run_id)
    clients: list[Any] = []

    def ask() -> Any:
        with _translate_kfp_errors(host):
            if not clients:
                clients.append(_client(host))
            # Not Client.get_run, which has no timeout.
            return clients[0]._run_api.run_service_get_run(run_id=run_id, _request_timeout=TIMEOUT_S)

    with report_run_continues(run_id, where):
        while True:
            run = poll(ask, run_id, where)
            details = run.run_details.task_details if run.run_details else None
            for task in details or []:
                if task.state and shown_states.get(task.display_name) != task.state:
                    shown_states[task.display_name] = task.state
                    say(f"[{task.display_name}] {task.state.lower()}")
            if run.state in _ENDED:
                break
            time.sleep(poll_s)
    if run.state != "SUCCEEDED":
        failed = sorted(name for name, state in shown_states.items() if state == "FAILED")
        what = f"step {', '.join(failed)} failed" if failed else f"it is {run.state.lower()}"
        raise UserError(f"the run {run_id} did not succeed: {what}", f"see its log at {where}")
    return str(run.state)


def run_page(host: str, run_id: str) -> str:
    """Return the URL of the run's page."""
    return f"{host.rstrip('/')}/#/runs/details/{run_id}"


def _client(host: str) -> Any:
    from kfp import Client

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions of KFP before 2
        return Client(host=host)


@contextmanager
def _translate_kfp_errors(host: str) -> Iterator[None]:
    """Translate errors of kfp's client and of the connection to UserError, or NoAnswer if a retry may help."""
    from kfp_server_api.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        kind = NoAnswer if may_recover(error.status or 0) else UserError
        raise kind(
            f"KFP at {host} refuses the request: {error.status} {_message(error)}", "see its message; check the address"
        ) from None
    except TimeoutError as error:
        problem = f"KFP at {host} does not answer in time: {error}"
        raise NoAnswer(problem, "check that this is the address of a KFP server") from None
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
