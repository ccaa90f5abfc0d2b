"""Options that name a server and what runs there, and the checks that the server has what they ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.downloads.http_download import is_http_url
from components.platform.storage.uri import GS
from pipelines.cli.flags import IMAGES, PARAMS
from pipelines.cli.pipeline import PIPELINE, in_pipelines_environment, parameters
from pipelines.images import given_images
from pipelines.parameters.check import checked_values, uses_rayjob
from pipelines.parameters.on_server import (
    check_bucket_exists,
    check_cloud_root,
    check_llvm_in_images,
    check_places_on_server,
    check_recipe_in_images,
    check_state_on_server,
)
from pipelines.spec import builds_sdk, load_spec, parameter_values
from pipelines.submit.artifact_registry import check_template
from pipelines.submit.artifact_root import check_artifact_root, with_artifact_root
from pipelines.submit.kfp_client import TOKEN_VARIABLE, KfpServer, token_from_environment
from pipelines.submit.kfp_runs import run_page
from pipelines.submit.overrides import override_for_kfp, override_for_vertex, with_small_requests
from pipelines.submit.overrides_document import StepOverrides, read_overrides
from pipelines.submit.prepare import (
    RunRequest,
    notify_settings,
    platform_spec,
    pod_labels,
    ready_spec,
    retries_for_vertex,
    run_id_settings,
    security_settings,
    with_run_pages,
    without_cache,
)
from pipelines.submit.reuse import reuse_by_content
from pipelines.submit.stored_pipeline import StoredRun
from pipelines.submit.vertex import VertexServer, VertexSettings, parse_vertex

_NOT_ON_VERTEX = {
    "namespace": ("Vertex AI has projects instead of namespaces", "name the project with --vertex PROJECT/REGION"),
    "experiment": ("a job of Vertex AI is in no experiment of KFP", "use --label KEY=VALUE"),
    "existing_token_file": ("Vertex AI takes credentials of Google Cloud", "gcloud auth application-default login"),
    "in_cluster_token": ("Vertex AI takes credentials of Google Cloud", "use Workload Identity in the pod"),
    "small": ("Vertex AI chooses the machine by the limits", "lower cpu.limit and memory.limit with --overrides"),
    "notify_secret": ("Vertex AI has no Kubernetes Secrets", "use Vertex AI's notifications"),
    "artifact_root": ("steps on Vertex AI read and write --pipeline-root themselves", "leave it out"),
}
_NOT_ON_KFP = {
    "network": ("the steps are in the cluster's network", "leave it out"),
    "encryption_key": ("the cluster's storage decides on encryption", "leave it out, or encrypt the bucket"),
}


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return a click option whose default is its type's empty value."""
    return click.option(*names, **{"default": "", **settings})


SERVER_OPTIONS = (
    option("--host", metavar="URL", help="URL of a KFP server, version 2.14 or newer."),
    option("--vertex", metavar="PROJECT/REGION", help="Project and region of Vertex AI Pipelines."),
    option("--namespace", metavar="NAME", help="KFP: namespace of the user, on a server with several users."),
    option(
        "--existing-token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        metavar="FILE",
        help=f"KFP: file with a bearer token, read again for each request.  [default: the token in ${TOKEN_VARIABLE}]",
    ),
    option(
        "--in-cluster-token",
        is_flag=True,
        default=False,
        help="KFP: in a pod, send the service account's token that Kubernetes projects for pipelines.kubeflow.org.",
    ),
)
PACKAGE_OPTIONS = (
    option(
        "--overrides",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        metavar="FILE",
        help="YAML file with CPUs, memory, nodes, volumes, Secrets and variables of steps; see docs/pipeline.md.",
    ),
    option(
        "--small",
        is_flag=True,
        default=False,
        help="KFP: let steps request half a processor and 2 GB, for nodes of two processors; limits stay.",
    ),
    option(
        "--notify-secret",
        metavar="NAME",
        help="KFP: Kubernetes Secret whose key `url` is a webhook to notify when the run ends.",
    ),
    option(
        "--artifact-root",
        metavar="URI",
        help="KFP: gs://BUCKET/PATH or s3://BUCKET/PATH that steps read and write themselves, with credentials from "
        "--overrides, so that KFP copies no artifacts; see docs/storage.md.",
    ),
    option(
        "--label",
        multiple=True,
        default=(),
        metavar="KEY=VALUE",
        help="Label of the job (Vertex AI), or of the pods of all steps (KFP); repeatable.",
    ),
    click.option(
        "--cache/--no-cache",
        default=True,
        help="Reuse results on the server, for the steps that allow it, or run every step.  [default: --cache]",
    ),
    PIPELINE,
    IMAGES,
)
RUN_OPTIONS = (
    option(
        "--pipeline-root",
        metavar="URI",
        help="gs://BUCKET/PATH of the artifacts; with --host also minio:// and s3://.  [default: the server's]",
    ),
    option("--name", help="Name of the run or schedule.  [default: the pipeline's name and the time]"),
    option("--experiment", metavar="NAME", help="KFP: experiment of the run.  [default: the pipeline's name]"),
    option(
        "--service-account",
        metavar="NAME",
        help="Service account of the steps: of Kubernetes, in their namespace (docs/cluster.md), or the e-mail address "
        "of one of Google Cloud.  [default: the server's]",
    ),
    option(
        "--network", metavar="NAME", help="Vertex AI: network of the steps, projects/NUMBER/global/networks/NETWORK."
    ),
    option("--encryption-key", metavar="NAME", help="Vertex AI: key of Cloud KMS, projects/.../cryptoKeys/KEY."),
    PARAMS,
    *PACKAGE_OPTIONS,
)


STORED_PIPELINE = option(
    "--stored-pipeline",
    metavar="NAME|URI",
    help="Start a pipeline that `mlgo pipeline upload` stored, in place of sending one; needs no kfp and no --images. "
    "KFP: its name, for the newest version; a run of the same --name in the experiment is not started again. Vertex "
    "AI: its URI.",
)


def options(*groups: tuple[Callable[[Any], Any], ...]) -> Callable[[Any], Any]:
    """Return a decorator that adds groups of options to a command, in this order."""

    def decorate(command: Any) -> Any:
        for add in reversed([add for group in groups for add in group]):
            command = add(command)
        return command

    return decorate


def chosen_server(given: Mapping[str, Any], needs_kfp: bool = True) -> KfpServer | VertexServer:
    """Return the server that --host or --vertex names; for KFP, continue in the environment that has kfp.

    Args:
        given: all options of the command by name.
        needs_kfp: False for a command that runs without kfp, too.

    Raises:
        UserError: none or both are given, the server does not have another option, or credentials contradict.
    """
    host, vertex = given["host"], given["vertex"]
    if bool(host) == bool(vertex):
        raise UserError("exactly one of --host and --vertex is needed", "pass --host URL or --vertex PROJECT/REGION")
    for name, (reason, remedy) in (_NOT_ON_VERTEX if vertex else _NOT_ON_KFP).items():
        if given.get(name):
            raise UserError(f"--{name.replace('_', '-')}: {reason}", remedy)
    if vertex:
        if (server := parse_vertex(vertex)) is None:
            raise UserError(
                f"--vertex {vertex!r} is not of the form PROJECT/REGION", "--vertex my-project/europe-west4"
            )
        return server
    if not is_http_url(host if "://" in host else f"http://{host}"):
        raise UserError(f"--host {host!r} is not the URL of a server", "--host https://kubeflow.example.com/pipeline")
    if given["existing_token_file"] and given["in_cluster_token"]:
        raise UserError("--existing-token-file and --in-cluster-token are two tokens", "leave one out")
    from_file = given["existing_token_file"] or given["in_cluster_token"]
    token = "" if from_file else token_from_environment()
    if needs_kfp and not given.get("stored_pipeline"):
        in_pipelines_environment()
    return KfpServer(host, given["namespace"], token, given["existing_token_file"], given["in_cluster_token"])


@dataclass(frozen=True)
class Package:
    """A pipeline that is ready for a server: PipelineSpec, and KFP's PlatformSpec or None."""

    spec: dict[str, Any]
    platform: dict[str, Any] | None


def package(server: KfpServer | VertexServer, given: Mapping[str, Any], ray: bool | None) -> Package:
    """Return the pipeline with digests of images, overrides and the other PACKAGE_OPTIONS.

    Args:
        ray: as for prepare.ready_spec.

    Raises:
        UserError: an image was not pushed, or the server or the pipeline does not have what the overrides ask for.
    """
    overrides = _overrides(given)
    spec = ready_spec(given["pipeline"], given_images(given["images"]), ray)
    if not given["cache"]:
        spec = without_cache(spec)
    if isinstance(server, VertexServer):
        return Package(override_for_vertex(retries_for_vertex(spec), overrides), None)
    if given["artifact_root"]:
        check_artifact_root(given["artifact_root"])
        spec = with_artifact_root(spec, given["artifact_root"])
    spec, pods = override_for_kfp(with_small_requests(spec) if given["small"] else spec, overrides)
    notified: dict[str, Any] = {}
    if given["notify_secret"]:
        spec, notified = notify_settings(spec, given["notify_secret"])
        spec = with_run_pages(spec, run_page(server, ""))
    labels = pod_labels(spec, _labels(given))
    return Package(spec, platform_spec(security_settings(spec), pods, notified, run_id_settings(spec), labels))


def _overrides(given: Mapping[str, Any]) -> dict[str, StepOverrides]:
    return read_overrides(given["overrides"]) if given["overrides"] else {}


def warn_of_nodes(spec: Mapping[str, Any]) -> None:
    """Say which steps fit no node of the kubeconfig's cluster, if KFP runs there: their pods would wait for ever."""
    from pipelines.cluster.kubernetes_checks import Cluster

    try:
        cluster = Cluster("", "")
    except UserError:  # no kubeconfig
        return
    here = cluster.check_operators(ray=False)[0].status == "ok"
    if here and (finding := cluster.too_large_steps(spec)):
        say(f"warning: the cluster at {cluster.host}: {finding.what}")
        say(f"  {finding.remedy}")


def run_request(server: KfpServer | VertexServer, given: Mapping[str, Any], starts_now: bool = False) -> RunRequest:
    """Return the run that RUN_OPTIONS describe.

    Args:
        starts_now: the run reads its inputs as they are now, so their content decides what is reused. The runs of a
            schedule read them later.

    Raises:
        UserError: as `package`, or a parameter or the pipeline root is invalid.
    """
    on_vertex = isinstance(server, VertexServer)
    spec, values = load_spec(given["pipeline"]), parameters(given["params"])
    overrides = _overrides(given)
    mounts = [path for step in overrides.values() for _key, _volume, path in step.mounts()]
    ray = _check_run(spec, values, given, on_vertex, mounts)
    ready = package(server, given, ray)
    spec = ready.spec
    if not on_vertex:
        warn_of_nodes(spec)
    if starts_now and given["cache"]:
        spec, reasons = reuse_by_content(spec, parameter_values(spec, values))
        for reason in reasons:
            say(f"not reused from earlier runs: steps that depend on --param {reason}")
    name = given["name"] or _run_name(spec["pipelineInfo"]["name"])
    return RunRequest(spec, values, name, given["pipeline_root"], given["service_account"], ready.platform)


def _check_run(
    spec: Mapping[str, Any],
    values: Mapping[str, str],
    given: Mapping[str, Any],
    on_vertex: bool,
    mounts: Collection[str] | None,
) -> bool | None:
    """Check the parameters and the pipeline root of a run; return whether a step starts a Ray cluster.

    None: the pipeline has no parameter that decides this, as the smoke test, whose step looks for KubeRay.

    Args:
        values: the given parameters, as text.
        mounts: where volumes are mounted in steps; None if that is unknown.

    Raises:
        UserError: one is invalid.
    """
    root, own = given["pipeline_root"], given["artifact_root"]
    if on_vertex or root:
        check_cloud_root(root, on_vertex)
    elif not own:
        say(
            "neither --artifact-root nor --pipeline-root: steps use the server's default. If that is not "
            "gs://BUCKET/PATH, a training whose pod is lost starts again from the beginning, and workers=rayjob fails"
        )
    if own:
        check_artifact_root(own)
    for option_name, place in (("--pipeline-root", root), ("--artifact-root", own)):
        if place.startswith(f"{GS}://"):
            check_bucket_exists(place, option_name)
    checked = checked_values(spec, values)
    check_places_on_server(checked, mounts)
    if not builds_sdk(spec):
        check_llvm_in_images(checked)
        check_recipe_in_images(checked)
    if state := checked.get("retrain_state"):
        check_state_on_server(state, root, own)
    ray = uses_rayjob(checked)
    if ray and root and not own and not on_vertex:
        check_cloud_root(root, vertex=False, rayjob=True)
    if ray and on_vertex:
        raise UserError(
            "--param workers=rayjob: a RayJob needs steps that run in a Kubernetes cluster",
            "submit to a KFP server (--host URL), or use workers=local",
        )
    return ray if "workers" in checked else None


def _refuse_changes(given: Mapping[str, Any]) -> None:
    """Raise UserError for an option that changes the pipeline, which is stored."""
    for name in ("overrides", "small", "notify_secret"):
        if given[name]:
            raise _changes(name, given)
    if not given["cache"]:
        raise UserError("--no-cache changes the pipeline, which is stored on the server", "pass it to upload")


def _changes(name: str, given: Mapping[str, Any]) -> UserError:
    return UserError(
        f"--{name.replace('_', '-')} changes the pipeline, which is stored on the server",
        f"pass it to mlgo pipeline upload, or leave --stored-pipeline {given['stored_pipeline']} out",
    )


def stored_job(given: Mapping[str, Any]) -> tuple[RunRequest, VertexSettings]:
    """Return the job of Vertex AI with the stored pipeline that RUN_OPTIONS describe. UserError as `stored_run`."""
    check_template(given["stored_pipeline"])
    _refuse_changes(given)
    spec, values = load_spec(given["pipeline"]), parameters(given["params"])
    _check_run(spec, values, given, on_vertex=True, mounts=None)
    name = given["name"] or _run_name(spec["pipelineInfo"]["name"])
    request = RunRequest(spec, values, name, given["pipeline_root"], given["service_account"])
    return request, replace(vertex_settings(given), template=given["stored_pipeline"])


def stored_run(given: Mapping[str, Any]) -> StoredRun:
    """Return the run of the stored pipeline that RUN_OPTIONS describe.

    Raises:
        UserError: a parameter or the pipeline root is invalid, or an option is of the stored version.
    """
    _refuse_changes(given)
    if given["label"]:
        raise _changes("label", given)
    spec = load_spec(given["pipeline"])
    values = parameters(given["params"])
    _check_run(spec, values, given, on_vertex=False, mounts=None)  # the stored version has the volumes
    typed = {name: value for name, value in parameter_values(spec, values).items() if name in values}
    stored = given["stored_pipeline"]
    return StoredRun(
        stored,
        given["name"] or _run_name(stored),
        typed,
        given["pipeline_root"],
        given["service_account"],
        given["experiment"] or stored,
        given["artifact_root"],
    )


def _run_name(pipeline: str) -> str:
    return f"{pipeline}-{time.strftime('%Y%m%d-%H%M%S')}"


def vertex_settings(given: Mapping[str, Any]) -> VertexSettings:
    """Return the options that only Vertex AI has. UserError if a label is not of the form KEY=VALUE."""
    return VertexSettings(given["network"], _labels(given), given["encryption_key"])


def _labels(given: Mapping[str, Any]) -> dict[str, str]:
    """Return --label. UserError if one is not of the form KEY=VALUE, or two have the same key."""
    labels = {}
    for label in given["label"]:
        key, equals, value = label.partition("=")
        if not (key and equals):
            raise UserError(f"--label {label!r} is not of the form KEY=VALUE", "for example --label team=compilers")
        if key in labels:
            raise UserError(f"--label {key} is given twice", "pass one value")
        labels[key] = value
    return labels
