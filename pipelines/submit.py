"""Submits the compiled pipeline to a KFP server and follows the run. Needs the environment `pipelines`."""

from __future__ import annotations

import json
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from components.console import UserError, say
from components.launcher.images import IMAGES
from pipelines.images import Image
from pipelines.spec import load_spec, parameter_values, with_images

POLL_S = float(os.environ.get("MLGO_POLL_S", "10"))
_ENDED = {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"}


def ready_spec(pipeline: Path, images: Mapping[str, Image]) -> dict[str, Any]:
    """The PipelineSpec with the digests of pushed images. UserError if an image was not pushed: no cluster has it."""
    references = {}
    for key, name in IMAGES.items():
        if key not in images or "@sha256:" not in images[key].reference:
            raise UserError(
                f"the image {key} has no digest in a registry, and a cluster could not pull it",
                "mlgo images build --registry HOST/PROJECT/REPOSITORY && mlgo images push",
            )
        references[name] = images[key].reference
    return with_images(load_spec(pipeline), references)


def submit(spec: Mapping[str, Any], given: Mapping[str, str], host: str, pipeline_root: str, name: str) -> str:
    """Starts a run on the KFP server at `host`; returns its id.

    Raises:
        UserError: a parameter is wrong, the server does not answer, or rejects the run (with its words).
    """
    parameters = {key: value for key, value in parameter_values(spec, given).items() if key in given}
    with _kfp(host) as client, tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch, f"{spec['pipelineInfo']['name']}.yaml")
        package.write_text(yaml.safe_dump(dict(spec), sort_keys=True))
        run = client.create_run_from_pipeline_package(
            str(package), arguments=parameters, run_name=name, experiment_name=spec["pipelineInfo"]["name"],
            pipeline_root=pipeline_root or None,
        )  # fmt: skip
        return str(run.run_id)


def follow(run_id: str, host: str, poll_s: float = POLL_S) -> str:
    """Tells each step's state as it changes until the run ends; returns the run's state.

    Raises:
        UserError: the run did not succeed, or the server does not answer any more.
    """
    told: dict[str, str] = {}
    with _kfp(host) as client:
        while True:
            run = client.get_run(run_id)
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
        where = f"step {', '.join(failed)} failed" if failed else f"it is {run.state.lower()}"
        raise UserError(f"the run {run_id} did not succeed: {where}", f"see its log at {host}/#/runs/details/{run_id}")
    return str(run.state)


@contextmanager
def _kfp(host: str) -> Iterator[Any]:
    """kfp's client; its errors and those of the connection become UserErrors."""
    from kfp import Client
    from kfp_server_api.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about versions of KFP before 2
            client = Client(host=host)
        yield client
    except ApiException as error:
        raise UserError(
            f"KFP at {host} refuses: {error.status} {_message(error)}", "see its message; is the address right?"
        ) from None
    except TimeoutError as error:
        problem = f"KFP at {host} does not answer well: {error}"
        raise UserError(problem, "is this the address of a KFP server?") from None
    except HTTPError as error:
        cause = getattr(error, "reason", None) or error
        raise UserError(
            f"KFP at {host} does not answer: {cause}",
            "check the address, or kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80",
        ) from None


def _message(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)
