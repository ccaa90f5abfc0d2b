"""`mlgo cluster`: check a Kubernetes cluster before a run needs it."""

from __future__ import annotations

import click

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER
from components.platform.rayjob.options import parse_settings
from components.platform.rayjob.spec import NAMESPACE, RayJobSpec
from components.platform.storage.uri import USAGE
from pipelines.cli.flags import IMAGES
from pipelines.parameters.on_server import DEFAULT_ROOT_SECRET, MINIO
from pipelines.spec import COMPILED, load_spec, used_images


@click.group("cluster")
def cluster_group() -> None:
    """Check a Kubernetes cluster before a run needs it.

    \b
    Example:
      mlgo cluster check --pipeline-root gs://my-bucket/kfp --workers 4
    """


@cluster_group.command()
@click.option("--context", default="", help="Context of the kubeconfig.  [default: the current one]")
@click.option("--namespace", default=NAMESPACE, show_default=True, help="Namespace of the steps.")
@click.option("--ray-namespace", default=NAMESPACE, show_default=True, help="Namespace of Ray clusters.")
@click.option(
    "--service-account", default="mlgo-steps", show_default=True, metavar="NAME", help="Account of the steps."
)
@click.option(
    "--workers",
    type=click.IntRange(0, 10000),
    default=8,
    show_default=True,
    metavar="N",
    help="Largest number of pods of the Ray cluster, as in --param workers=rayjob:N; 0 if runs use none.",
)
@click.option(
    "--ray-cluster-options", default="", metavar="NAME=VALUE,...", help="As the pipeline's parameter of this name."
)
@click.option("--pipeline-root", default="", metavar="URI", help=f"{USAGE} of the artifacts.  [default: not checked]")
@click.option(
    "--artifact-root", default="", metavar="URI", help=f"{USAGE} that steps use themselves.  [default: not checked]"
)
@click.option("--host", default="", metavar="URL", help="KFP server, whose version is asked.  [default: not checked]")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME",
    help="Secret that --notify-secret or --overrides names; repeatable.",
)
@IMAGES
def check(
    context: str,
    namespace: str,
    ray_namespace: str,
    service_account: str,
    workers: int,
    ray_cluster_options: str,
    pipeline_root: str,
    artifact_root: str,
    host: str,
    secrets: tuple[str, ...],
    images: str,
) -> None:
    """Report what a run on this cluster would miss: operators, service accounts and their rights, Secrets, quota, nodes
    for the steps and for Ray, the bucket, images in a registry.

    A KFP for one user runs steps in its own namespace, usually kubeflow, as pipeline-runner.

    Nothing is changed, but for a small object below each root that is removed again. To review the rights of
    service accounts, yours must be allowed to create SubjectAccessReviews. The exit status is 1 if something is
    missing; what this account or machine cannot see counts as unknown.

    \b
    Examples:
      mlgo cluster check --pipeline-root gs://my-bucket/kfp
      mlgo cluster check --context gke_my-project_europe-west4_train --workers 16 \\
        --ray-cluster-options cpus_per_worker=8
      mlgo cluster check --host http://localhost:8080   # with the token in $KFP_TOKEN, if there is one
      mlgo cluster check --namespace kubeflow --service-account pipeline-runner --workers 0
      mlgo cluster check --namespace kubeflow --service-account pipeline-runner --secret mlgo-notify
    """
    from pipelines.cluster.findings import Finding, missing
    from pipelines.cluster.kubernetes_checks import UNKNOWN_IMAGE, Cluster
    from pipelines.cluster.storage_and_images import check_bucket, check_images, check_kfp
    from pipelines.images import given_images
    from pipelines.submit.artifacts.root import check_artifact_root
    from pipelines.submit.kfp_client import KfpAddress, token_from_environment

    settings = parse_settings(ray_cluster_options)
    unread = None
    try:
        pushed = given_images(images)
    except UserError as error:
        pushed, unread = {}, error
    spec = None
    if workers:
        settings = {"namespace": ray_namespace, "max_workers": workers, **settings}
        image = pushed[CLUSTER].reference if CLUSTER in pushed else ""
        image = image if "@" in image else UNKNOWN_IMAGE
        spec = RayJobSpec(name="check", image=image, entrypoint=("mlgo",), **settings)
    cluster = Cluster(namespace, context)
    cluster.require_answer()
    say(f"Kubernetes at {cluster.host}, namespace {namespace}")
    findings: list[Finding] = []
    findings += cluster.check_operators(ray=spec is not None)
    of_kfp: list[Finding] = []
    version = None
    if host:
        of_kfp, version = check_kfp(KfpAddress(host, token=token_from_environment()), namespace)
    launcher_reads = (DEFAULT_ROOT_SECRET,) if pipeline_root.partition("://")[0] in ("", MINIO) else ()
    findings += cluster.check_steps(service_account, launcher_reads, version)
    findings += cluster.check_secrets(secrets)
    findings += cluster.check_step_nodes(load_spec(COMPILED))
    if spec:
        ray = cluster.at(spec.namespace)
        findings += ray.check_ray(spec, service_account, namespace)
        findings += ray.check_capacity(spec)
    findings += of_kfp
    if pipeline_root:
        findings.append(check_bucket(pipeline_root))
    if artifact_root:
        check_artifact_root(artifact_root)
        findings.append(check_bucket(artifact_root))
    if unread is None:
        try:
            findings += check_images(pushed, (*used_images(load_spec(COMPILED)), *((CLUSTER,) if spec else ())))
        except UserError as error:
            unread = error
    if unread:
        findings.append(missing(unread.problem, unread.remedy))
    for finding in findings:
        say(f"{finding.status:8}{finding.what}")
        if finding.remedy:
            say(f"{'':8}  remedy: {finding.remedy}")
    absent = sum(finding.status == "missing" for finding in findings)
    if absent:
        raise UserError(f"a run would miss {absent} of {len(findings)} things", "see the list above")
