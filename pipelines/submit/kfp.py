"""Requests to a KFP server: start and schedule runs, and store pipelines.

Needs the environment `pipelines`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from components.platform.console import say
from components.platform.errors import UserError
from pipelines.submit.cron import CronSchedule
from pipelines.submit.kfp_client import KfpServer, connect, version_numbers
from pipelines.submit.prepare import RunRequest, known_settings
from pipelines.submit.stored_pipeline import name_is

MAX_CONCURRENCY = 10
"""Limit of the API server (recurring_run.proto)."""


def submit(server: KfpServer, request: RunRequest, experiment: str = "") -> str:
    """Start a run; return its ID.

    Args:
        experiment: name of the experiment, which is created if it does not exist; empty for the pipeline's name.

    Raises:
        UserError: a parameter is invalid, or the server does not answer or rejects the run (with its message).
    """
    parameters = request.parameters()
    client = connect(server, for_namespace=True)
    with _package(request.spec, request.platform, client) as package, _one_experiment(experiment):
        run = client.create_run_from_pipeline_package(
            str(package),
            arguments=parameters,
            run_name=request.name,
            experiment_name=experiment or request.spec["pipelineInfo"]["name"],
            namespace=server.namespace or None,
            pipeline_root=request.pipeline_root or None,
            service_account=request.account or None,
        )
    return str(run.run_id)


def schedule(
    server: KfpServer, request: RunRequest, cron: CronSchedule, max_concurrency: int, experiment: str = ""
) -> str:
    """Create a recurring run; return its ID. Runs that were missed, while it was disabled for example, do not start.

    Args:
        max_concurrency: how many of its runs may run at the same time, 1 to MAX_CONCURRENCY.
        experiment: as for `submit`.

    Raises:
        UserError: as `submit`, or the schedule has a time zone.
    """
    expression = cron.for_kfp()
    parameters = request.parameters()
    client = connect(server, for_namespace=True)
    with _package(request.spec, request.platform, client) as package, _one_experiment(experiment):
        parent = client.create_experiment(
            experiment or request.spec["pipelineInfo"]["name"], namespace=server.namespace or None
        )
        created = client.create_recurring_run(
            experiment_id=parent.experiment_id,
            job_name=request.name,
            cron_expression=expression,
            max_concurrency=str(max_concurrency),  # an int64, which is text in the API
            no_catchup=True,
            params=parameters,
            pipeline_package_path=str(package),
            pipeline_root=request.pipeline_root or None,
            service_account=request.account or None,
        )
    return str(created.recurring_run_id)


def upload(
    server: KfpServer, spec: Mapping[str, Any], platform: Mapping[str, Any] | None, name: str, version: str
) -> tuple[str, str]:
    """Store a pipeline on the server; return the IDs of the pipeline and of its new version.

    Args:
        platform: from prepare.platform_spec.
        name: display name of the pipeline, which is created if it does not exist.
        version: display name of the version.

    Raises:
        UserError: the pipeline has a version of this name, or the server does not answer or refuses. A pipeline that
            was created for the version does not stay.
    """
    client = connect(server, for_namespace=True)
    service = client._pipelines_api
    namespace = client.get_user_namespace() or None
    found = service.pipeline_service_list_pipelines(
        filter=name_is(name), **({"namespace": namespace} if namespace else {})
    )
    if len(found.pipelines or ()) > 1:
        raise UserError(f"KFP has {len(found.pipelines)} pipelines named {name!r}", "pass another --name")
    if existing := found.pipelines:
        pipeline_id = existing[0].pipeline_id
        versions = service.pipeline_service_list_pipeline_versions(pipeline_id, filter=name_is(version))
        if versions.pipeline_versions:
            raise UserError(
                f"the pipeline {name} has a version {version!r}, and versions do not change",
                "pass another --version-name",
            )
    else:
        from kfp_server_api import V2beta1Pipeline

        pipeline_id = service.pipeline_service_create_pipeline(
            V2beta1Pipeline(display_name=name, namespace=namespace)
        ).pipeline_id
    try:
        with _package(spec, platform, client) as package:
            uploaded = client._upload_api.upload_pipeline_version(str(package), name=version, pipelineid=pipeline_id)
    except BaseException:
        if not existing:
            try:
                service.pipeline_service_delete_pipeline(pipeline_id)
            except UserError as error:
                say(f"warning: the pipeline {name} stays without a version: {error.problem}")
        raise
    return str(pipeline_id), str(uploaded.pipeline_version_id)


@contextmanager
def _package(spec: Mapping[str, Any], platform: Mapping[str, Any] | None, client: Any) -> Iterator[Path]:
    """Write a pipeline as the package that kfp's client reads: the spec and the platform's settings.

    Args:
        client: from kfp_client.connect; the settings are those that its server knows.
    """
    platform = platform and known_settings(platform, version_numbers(client.kfp_version))
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch, f"{spec['pipelineInfo']['name']}.yaml")
        documents = [dict(spec), *([dict(platform)] if platform else [])]
        package.write_text(yaml.safe_dump_all(documents, sort_keys=True))
        yield package


@contextmanager
def _one_experiment(name: str) -> Iterator[None]:
    """Translate the ValueError of kfp's client for an experiment's name that is not unique, and keep it from printing.

    It prints the pages of the experiment and the run; ours prints the latter.
    """
    try:
        with redirect_stdout(StringIO()):
            yield
    except ValueError as error:
        raise UserError(f"--experiment {name}: {error}" if name else str(error), "pass --experiment NAME") from None
