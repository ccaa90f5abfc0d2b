"""The check of the smoke test that KubeRay runs a RayJob: of one pod, the head, without workers."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import Any

from kubernetes.client import ApiException

from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER_VARIABLE
from components.platform.rayjob.kubernetes import ApiServer, error_of_refusal
from components.platform.rayjob.manifest import API_VERSION, job_name
from components.platform.rayjob.options import parse_settings
from components.platform.rayjob.spec import NAMESPACE, RayJobSpec
from components.platform.rayjob.step_lease import RUN_VARIABLE
from components.platform.rayjob.submit import POLL_S, end_rayjob, run_rayjob
from pipelines.smoke.rows import NotTried

_PATIENCE_S = 60.0
_RAY_LIMIT_S = 600
_RAY_START_LIMIT_S = 300
_FAILED_REMEDY = "the RayJob is deleted again; the lines above this table, and `mlgo cluster check`, tell more"
_RAY_PROGRAM = "import ray; ray.init(); print(ray.__version__)"


def check_ray(cluster_options: str, run_id: str, server: ApiServer | None = None, poll_s: float = POLL_S) -> str:
    """Run a RayJob of one pod, the head, to its end, and delete it.

    Args:
        cluster_options: the pipeline's parameter `ray_cluster_options`.
        server: None for that of this pod.

    Raises:
        NotTried: no image of the nodes is given, this is no pod, or KubeRay is not installed.
    """
    image = os.environ.get(CLUSTER_VARIABLE)
    if not image:
        raise NotTried(
            "no image of Ray's nodes was pushed, which workers=rayjob needs",
            "if you want it: mlgo images build --all, and push",
        )
    try:
        api = server or ApiServer(patience_s=_PATIENCE_S)
    except UserError as error:
        raise NotTried(f"{error.problem}; so workers=rayjob is not possible") from None
    group, version = API_VERSION.split("/")
    try:
        api.call(api.rayjobs.get_api_resources, group, version)
    except ApiException as error:
        if error.status == 404:
            raise NotTried(
                "KubeRay's operator is not installed, which workers=rayjob needs", "if you want it: docs/cluster.md"
            ) from None
        raise error_of_refusal(
            error, f"to list the resources of {group}", "check the rights of the step's account"
        ) from None
    defaults: dict[str, Any] = {
        "namespace": NAMESPACE,
        "head_cpus": 1,
        "head_memory_bytes": 3 << 30,
        "retries": 0,
        "start_limit_s": _RAY_START_LIMIT_S,
        "deadline_s": _RAY_LIMIT_S,
    }
    spec = RayJobSpec(
        name=job_name({"run": run_id or secrets.token_hex(8)}, "smoke"),
        image=image,
        entrypoint=("python", "-c", _RAY_PROGRAM),
        max_workers=1,
        run_id=os.environ.get(RUN_VARIABLE, ""),
        **{**defaults, **parse_settings(cluster_options)},
    )
    try:
        run_rayjob(spec, api, poll_s)
    except UserError as error:
        refused_here = spec.name not in error.remedy
        raise UserError(error.problem, error.remedy if refused_here else _FAILED_REMEDY) from None
    finally:  # also where it failed or the run is canceled: nobody needs what is left of it
        with suppress(UserError):
            end_rayjob(spec, api)
    return f"a RayJob in {spec.namespace} has started a head and run a program on it"
