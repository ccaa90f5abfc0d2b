"""The RayJobs of a run, which outlive its steps."""

from __future__ import annotations

from kubernetes.client import ApiException, V1DeleteOptions
from urllib3.exceptions import HTTPError

from components.platform.rayjob.kubernetes import is_header_error, status_message
from components.platform.rayjob.manifest import API_VERSION, RUN_LABEL
from components.platform.rayjob.spec import NAMESPACE
from pipelines.cluster.kubernetes_checks import TIMEOUT_S, Cluster


def delete_rayjobs(cluster: Cluster, run_id: str) -> tuple[list[str], str]:
    """Delete the RayJobs that steps of a run started, and their Ray clusters.

    Returns:
        NAMESPACE/NAME of those that were deleted, and why others may be left; empty if there are none.
    """
    group, version = API_VERSION.split("/")
    query = {"label_selector": f"{RUN_LABEL}={run_id}", "_request_timeout": TIMEOUT_S}
    deleted: list[str] = []
    try:
        try:
            listed = cluster.custom.list_cluster_custom_object(group, version, "rayjobs", **query)
        except ApiException as error:
            if error.status != 403:
                raise
            listed = cluster.custom.list_namespaced_custom_object(group, version, NAMESPACE, "rayjobs", **query)
        for job in listed["items"]:
            name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
            options = V1DeleteOptions(propagation_policy="Foreground")
            cluster.custom.delete_namespaced_custom_object(
                group, version, namespace, "rayjobs", name, body=options, _request_timeout=TIMEOUT_S
            )
            deleted.append(f"{namespace}/{name}")
    except ApiException as error:
        return deleted, f"{error.status} {status_message(error)}"
    except (HTTPError, OSError, ValueError, KeyError, TypeError) as error:
        return deleted, "the token cannot be sent" if is_header_error(error) else str(error).splitlines()[0][:200]
    return deleted, ""
