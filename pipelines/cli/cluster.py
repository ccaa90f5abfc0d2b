"""`mlgo cluster`: check a Kubernetes cluster before a run needs it."""

from __future__ import annotations

import click

from components.core.console import UserError, say
from components.core.launcher.images import CLUSTER
from components.core.rayjob.options import parse_settings
from components.core.rayjob.spec import NAMESPACE, RayJobSpec
from components.core.storage.uri import USAGE
from pipelines.cli.flags import IMAGES
from pipelines.spec import COMPILED, load_spec, used_images

_NO_IMAGE = f"mlgo-cluster@sha256:{'0' * 64}"  # the size of a Ray cluster does not depend on it


@click.group("cluster")
def cluster_group() -> None:
    """Check a Kubernetes cluster before a run needs it.

    \b
    Example:
      mlgo cluster check --pipeline-root gs://my-bucket/kfp --workers 4
    """


@cluster_group.command()
@click.option("--context", default="", help="Context of the kubeconfig.  [default: the current one]")
@click.option("--namespace", default=NAMESPACE, show_default=True, help="Namespace of the steps and Ray clusters.")
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
@click.option("--host", default="", metavar="URL", help="KFP server, whose version is asked.  [default: not checked]")
@IMAGES
def check(
    context: str,
    namespace: str,
    service_account: str,
    workers: int,
    ray_cluster_options: str,
    pipeline_root: str,
    host: str,
    images: str,
) -> None:
    """Report what a run on this cluster would miss: operators, service accounts and their rights, quota, nodes, the
    bucket, images in a registry.

    Nothing is changed, but for a small object below --pipeline-root that is removed again. To review the rights of
    service accounts, yours must be allowed to create SubjectAccessReviews. The exit status is 1 if something is
    missing; what this account or machine cannot see counts as unknown.

    \b
    Examples:
      mlgo cluster check --pipeline-root gs://my-bucket/kfp
      mlgo cluster check --context gke_my-project_europe-west4_train --workers 16 \\
        --ray-cluster-options cpus_per_worker=8
      mlgo cluster check --host http://localhost:8080   # with the token in $KFP_TOKEN, if there is one
      mlgo cluster check --namespace kubeflow --service-account pipeline-runner --workers 0
    """
    from pipelines.cluster.findings import Finding, missing
    from pipelines.cluster.kubernetes_checks import Cluster
    from pipelines.cluster.storage_and_images import check_bucket, check_images, check_kfp
    from pipelines.images import given_images
    from pipelines.submit.kfp_client import KfpServer, token_from_environment

    settings = parse_settings(ray_cluster_options)
    spec = None
    if workers:
        settings = {"namespace": namespace, "max_workers": workers, **settings}
        spec = RayJobSpec(name="check", image=_NO_IMAGE, entrypoint=("mlgo",), **settings)
    cluster = Cluster(namespace, context)
    cluster.require_answer()
    say(f"Kubernetes at {cluster.host}, namespace {namespace}")
    found: list[Finding] = []
    found += cluster.check_operators(ray=spec is not None)
    found += cluster.check_accounts(service_account, spec.service_account if spec else "", spec)
    if spec:
        found += cluster.check_capacity(spec)
    if host:
        found.append(check_kfp(KfpServer(host, token=token_from_environment())))
    if pipeline_root:
        found.append(check_bucket(pipeline_root))
    try:
        found += check_images(given_images(images), (*used_images(load_spec(COMPILED)), *((CLUSTER,) if spec else ())))
    except UserError as error:
        found.append(missing(error.problem, error.remedy))
    for finding in found:
        say(f"{finding.status:8}{finding.what}")
        if finding.remedy:
            say(f"{'':8}  remedy: {finding.remedy}")
    absent = sum(finding.status == "missing" for finding in found)
    if absent:
        raise UserError(f"a run would miss {absent} of {len(found)} things", "see the list above")
