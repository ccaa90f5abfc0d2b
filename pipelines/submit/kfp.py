"""Kubeflow Pipelines: start, schedule, list, follow, cancel and retry runs, store pipelines, by its REST API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, ClassVar

import yaml

from components.platform.console import say
from components.platform.console.number_types import environment_number
from components.platform.errors import UserError
from pipelines.parameters.on_server import check_cloud_root
from pipelines.spec_changes import without_literals
from pipelines.submit.artifacts.root import OPTION, artifact_root_of, check_artifact_root
from pipelines.submit.cron import CronSchedule
from pipelines.submit.kfp_client import KfpAddress, KfpClient
from pipelines.submit.kfp_package import package_for_kfp
from pipelines.submit.kfp_run import KfpRun, require_run_id, run_state, stored_spec
from pipelines.submit.kfp_tasks import parse_time
from pipelines.submit.options import Package, RunRequest, SubmitOptions
from pipelines.submit.polling import RUN_ENDED, describe_state
from pipelines.submit.run_checks import check_run, refuse_change, run_request
from pipelines.submit.server import PipelineServer, RunSummary, Schedule, ScheduleChange, seconds_since

MAX_CONCURRENCY = 10
"""Limit of the API server (recurring_run.proto)."""
_PAGE_SIZE = 50
"""Objects in an answer, at most 200. Each run in a list has its whole pipeline."""
_NEWEST_FIELDS = (2, 16)
"""The version of KFP in which securityContext and subPath came into kubernetes_executor_config.proto, `literals` into
pipeline_spec.proto."""
_LIMITS_AND_TAGS = (2, 17)
"""The version of KFP in which PipelineConfig got its limits of workflows, and versions of pipelines their tags."""


class KfpPipelines(PipelineServer):
    """Pipelines and runs on a KFP server; see PipelineServer."""

    lacks: ClassVar[Mapping[str, tuple[str, str]]] = {
        "network": ("the steps are in the cluster's network", "leave it out"),
        "encryption_key": ("the cluster's storage decides on encryption", "leave it out, or encrypt the bucket"),
        "repository": ("KFP stores pipelines itself", "leave it out; Vertex AI's are in Artifact Registry"),
    }
    poll_s = environment_number("MLGO_POLL_S", 10)
    limits_only = False

    def __init__(self, server: KfpAddress) -> None:
        self.server = server
        self._client = KfpClient(server)

    def submit(self, options: SubmitOptions) -> tuple[str, str]:
        """Start a run; see PipelineServer. A stored pipeline's run of the same name is not started again."""
        request = self.prepare(options, starts_now=True)
        run_id = self.send(request)
        return run_id, f"run {request.name}: {self.page(run_id)}"

    def prepare(self, options: SubmitOptions, starts_now: bool = False) -> RunRequest:
        """Check what the user asks for, and return what the server is sent.

        Args:
            starts_now: see CheckedRun.request.
        """
        if options.stored_pipeline and options.labels:
            refuse_change(options, "label")
        if options.artifact_root:
            check_artifact_root(options.artifact_root)
        if options.pipeline_root:
            check_cloud_root(options.pipeline_root, vertex=False)
        elif not options.artifact_root:
            say(
                "neither --artifact-root nor --pipeline-root: steps use the server's default. If that is not "
                "gs://BUCKET/PATH, a training whose pod is lost starts again from the beginning, and workers=rayjob "
                "fails"
            )
        values, ray = check_run(options)
        if ray and options.pipeline_root and not options.artifact_root:
            check_cloud_root(options.pipeline_root, vertex=False, rayjob=True)
        package = None if options.stored_pipeline else package_for_kfp(options, ray, self.page(""))
        return run_request(options, values, package, starts_now)

    def send(self, request: RunRequest) -> str:
        """Start a run, unless a stored pipeline has one of its name in the experiment; return its ID.

        The server does not look for equal runs itself: a request whose answer was lost, and that is sent again, would
        train twice.
        """
        if request.package:
            warn_of_nodes(request.package.spec)
        source = self._source(request)
        experiment = self._experiment(request.options)
        # Without the namespace, which is the experiment's.
        if request.package is None and (runs := self._list("runs", request.name, experiment_id=experiment)):
            experiment_name = request.options.experiment_name
            say(f"the experiment {experiment_name} has a run {request.name} already: no other one is started")
            return _id_of(runs[0], "run_id")
        return _id_of(self._client.ask("POST", "runs", _body(request, experiment, source)), "run_id")

    def _source(self, request: RunRequest) -> dict[str, Any]:
        """Return the fields of a request that say what is run."""
        if request.package is None:
            return {"pipeline_version_reference": self._newest_version(request.options)}
        spec, platform = self._known(request.package)
        return {"pipeline_spec": {"pipeline_spec": spec, "platform_spec": platform} if platform else spec}

    def _newest_version(self, options: SubmitOptions) -> dict[str, str]:
        """Return the reference to the newest version of the stored pipeline.

        Raises:
            UserError: there is none, or it was stored with another artifact root than the run's.
        """
        client, name = self._client, options.stored_pipeline
        pipelines = self._list("pipelines", name, namespace=client.namespace_to_create_in())
        if len(pipelines) != 1:
            raise UserError(
                f"KFP at {self.server.host} has {len(pipelines) or 'no'} pipelines named {name!r}",
                "store it with mlgo pipeline upload, or pass another name",
            )
        pipeline = _id_of(pipelines[0], "pipeline_id")
        newest = client.ask("GET", f"pipelines/{pipeline}/versions", page_size=1, sort_by="created_at desc")
        if not (versions := _objects(newest, "pipeline_versions")):
            raise UserError(f"the pipeline {name} has no version", "mlgo pipeline upload")
        version = _id_of(versions[0], "pipeline_version_id")
        if root := options.artifact_root:
            stored_root = artifact_root_of(stored_spec(client, pipeline, version))
            if stored_root.rstrip("/") != root.rstrip("/"):
                raise UserError(
                    f"the newest version of the pipeline {name} was stored with "
                    f"{f'{OPTION} {stored_root}' if stored_root else f'no {OPTION}'}, not with {root}",
                    f"mlgo pipeline upload {OPTION} {root}, or pass the stored one",
                )
        return {"pipeline_id": pipeline, "pipeline_version_id": version}

    def _experiment(self, options: SubmitOptions) -> str:
        """Return the ID of the experiment, which is created if it does not exist."""
        name, namespace = options.experiment_name, self._client.namespace_to_create_in()
        if found := self._find_experiment(name, namespace):
            return found
        return _id_of(self._client.ask("POST", "experiments", _named(name, namespace)), "experiment_id")

    def _find_experiment(self, name: str, namespace: str) -> str:
        """Return the ID of the experiment, "" if there is none. UserError if there are several."""
        experiments = self._list("experiments", name, namespace=namespace)
        if len(experiments) > 1:
            raise UserError(f"KFP has {len(experiments)} experiments named {name!r}", "pass --experiment NAME")
        return _id_of(experiments[0], "experiment_id") if experiments else ""

    def _known(self, package: Package) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return PipelineSpec and PlatformSpec as this server knows them: an older one refuses fields that came later.

        Raises:
            UserError: the server does not know what an option asks for.
        """
        version = self._client.health.numbers
        platform: dict[str, Any] | None = json.loads(json.dumps(package.platform))
        kubernetes = platform["platforms"]["kubernetes"] if platform else {}
        if "pipelineConfig" in kubernetes and _is_older(version, _LIMITS_AND_TAGS):
            raise _needs("--ttl-hours or --deadline-hours", _LIMITS_AND_TAGS, version)
        if not _is_older(version, _NEWEST_FIELDS):
            return dict(package.spec), platform
        for label, config in kubernetes.get("deploymentSpec", {}).get("executors", {}).items():
            config.pop("securityContext", None)  # no pod of such a KFP could run where that is needed
            if any("subPath" in mount for mount in config.get("pvcMount", ())):
                what = f"--overrides: {label.removeprefix('exec-')}: volumes: sub_path"
                raise _needs(what, _NEWEST_FIELDS, version, "mount the whole volume")
        return dict(without_literals(package.spec)), platform

    def _list(self, route: str, name: str, key: str = "", **query: str) -> list[Any]:
        """Return the objects of a route with this display name.

        Args:
            key: of the list in the answer; empty if it is the route.
        """
        # A filter of the API (filter.proto).
        only = json.dumps({"predicates": [{"operation": 1, "key": "display_name", "stringValue": name}]})
        return _objects(self._client.ask("GET", route, filter=only, **query), key or route)

    def schedule(self, options: SubmitOptions, cron: CronSchedule, max_concurrency: int) -> str:
        expression = cron.for_kfp()
        return self.send_schedule(self.prepare(options), expression, max_concurrency)

    def send_schedule(self, request: RunRequest, cron: str, max_concurrency: int) -> str:
        """Start the runs of a schedule; return a line that names it."""
        if request.package:
            warn_of_nodes(request.package.spec)
        source = self._source(request)
        recurring = {
            **_body(request, self._experiment(request.options), source),
            "mode": "ENABLE",
            "trigger": {"cron_schedule": {"cron": cron}},
            "max_concurrency": str(max_concurrency),  # an int64, which is text in the API
            "no_catchup": True,
        }
        schedule = _id_of(self._client.ask("POST", "recurringruns", recurring), "recurring_run_id")
        return f"schedule {request.name}: {self.server.page(f'recurringrun/details/{schedule}')}"

    def upload(self, options: SubmitOptions, version: str, repository: str) -> str:
        """Store a pipeline; see PipelineServer. A pipeline that is created for the version does not stay without it."""
        if options.artifact_root:
            check_artifact_root(options.artifact_root)
        if options.tag and _is_older(self._client.health.numbers, _LIMITS_AND_TAGS):
            raise _needs("--tag", _LIMITS_AND_TAGS, self._client.health.numbers)
        spec, platform = self._known(package_for_kfp(options, ray=None, pages=self.page("")))
        client, namespace = self._client, self._client.namespace_to_create_in()
        name = options.name or options.pipeline
        pipelines = self._list("pipelines", name, namespace=namespace)
        if len(pipelines) > 1:
            raise UserError(f"KFP has {len(pipelines)} pipelines named {name!r}", "pass another --name")
        if pipelines:
            pipeline = _id_of(pipelines[0], "pipeline_id")
            if self._list(f"pipelines/{pipeline}/versions", version, key="pipeline_versions"):
                raise UserError(
                    f"the pipeline {name} has a version {version!r}, and versions do not change",
                    "pass another --version-name",
                )
        else:
            pipeline = _id_of(client.ask("POST", "pipelines", _named(name, namespace)), "pipeline_id")
        text = yaml.safe_dump_all([spec, platform] if platform else [spec], sort_keys=True)
        try:
            uploaded = client.upload(
                "pipelines/upload_version",
                f"{spec['pipelineInfo']['name']}.yaml",
                text,
                name=version,
                pipelineid=pipeline,
                **({"tags": json.dumps(dict(options.tag))} if options.tag else {}),
            )
        except BaseException:
            if not pipelines:
                try:
                    client.ask("DELETE", f"pipelines/{pipeline}")
                except UserError as error:
                    say(f"warning: the pipeline {name} stays without a version: {error.problem}")
            raise
        page = self.server.page(f"pipelines/details/{pipeline}/version/{_id_of(uploaded, 'pipeline_version_id')}")
        return f"version {version} of {name}: {page}"

    def runs(self, experiment: str = "") -> Iterator[RunSummary]:
        query = {"namespace": self._client.namespace_to_create_in()}
        if experiment:
            identity = self._find_experiment(experiment, query["namespace"])
            if not identity:
                names = [str(one.get("display_name")) for one in self._pages("experiments", **query)]
                raise UserError(
                    f"KFP at {self.server.host} has no experiment {experiment!r}",
                    f"it has {', '.join(names)}" if names else "it has none yet",
                )
            query = {"experiment_id": identity}  # without the namespace, which is the experiment's
        for run in self._pages("runs", **query):
            if run.get("storage_state") != "ARCHIVED":
                begun, ended = (parse_time(run.get(key)) for key in ("created_at", "finished_at"))
                state, name = run_state(run), str(run.get("display_name") or "")
                ended = ended if state in RUN_ENDED else None
                yield RunSummary(_id_of(run, "run_id"), name, state, begun, seconds_since(begun, ended))

    def schedules(self) -> list[Schedule]:
        found = self._pages("recurringruns", "recurringRuns", namespace=self._client.namespace_to_create_in())
        return [
            Schedule(
                _id_of(one, "recurring_run_id"),
                str(one.get("display_name") or ""),
                one.get("status") != "DISABLED",
                _times(one.get("trigger")),
            )
            for one in found
        ]

    def change_schedule(self, schedule_id: str, change: ScheduleChange) -> None:
        route = f"recurringruns/{schedule_id}"
        if change == "delete":
            # Kubernetes would delete the workflows of the schedule's runs, also of running ones.
            self._client.ask("DELETE", route, propagation_policy="ORPHAN")
        else:
            self._client.ask("POST", f"{route}:{'disable' if change == 'pause' else 'enable'}")

    def _pages(self, route: str, key: str = "", **query: str) -> Iterator[Mapping[str, Any]]:
        """Yield all objects of a route, newest first.

        Args:
            key: of the list in the answer; empty if it is the route.
        """
        token = ""
        while True:
            answer = self._client.ask(
                "GET", route, page_size=_PAGE_SIZE, page_token=token, sort_by="created_at desc", **query
            )
            yield from (one for one in _objects(answer, key or route) if isinstance(one, Mapping))
            if not (token := str(answer.get("next_page_token") or "")):
                return

    def run(self, run_id: str) -> KfpRun:
        require_run_id(run_id)
        self._client.require_usable()
        return KfpRun(self._client, run_id)

    def page(self, run_id: str) -> str:
        return self.server.page(f"runs/details/{run_id}")

    def cancel(self, run_id: str) -> bool:
        run = self.run(run_id)
        if run.state in RUN_ENDED:
            raise UserError(f"the run {run_id} has ended: {describe_state(run.state)}", f"see it at {run.page}")
        may_start_ray = run.may_start_ray
        self._client.ask("POST", f"runs/{run_id}:terminate")
        return may_start_ray

    def retry(self, run_id: str) -> None:
        """Start the failed tasks of a run again; see PipelineServer.

        KFP keeps the run, its ID and the results of finished tasks. An exit handler that has run does not run again.
        """
        state = self.run(run_id).state
        if state not in ("FAILED", "CANCELED"):
            raise UserError(
                f"the run {run_id} has not failed: {describe_state(state)}",
                "submit a new run" if state in RUN_ENDED else f"wait until it has ended: mlgo pipeline watch {run_id}",
            )
        self._client.ask("POST", f"runs/{run_id}:retry")


def _body(request: RunRequest, experiment: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a V2beta1Run and a V2beta1RecurringRun share."""
    options = request.options
    settings: dict[str, Any] = {"parameters": dict(request.parameters)}
    if options.pipeline_root:
        settings["pipeline_root"] = options.pipeline_root
    body = {"display_name": request.name, "experiment_id": experiment, "runtime_config": settings, **source}
    return body | ({"service_account": options.service_account} if options.service_account else {})


def _named(name: str, namespace: str) -> dict[str, str]:
    return {"display_name": name} | ({"namespace": namespace} if namespace else {})


def _times(trigger: Any) -> str:
    """Return when a recurring run starts runs."""
    cron, period = ((trigger or {}).get(key) or {} for key in ("cron_schedule", "periodic_schedule"))
    return str(cron.get("cron") or f"every {period.get('interval_second', '?')} s")


def _objects(document: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list `name` of an answer; the API omits an empty one."""
    objects = document.get(name) or []
    if not isinstance(objects, list):
        raise UserError(f"KFP answers with {name} that are no list", "check the address")
    return objects


def _id_of(entry: Any, name: str) -> str:
    """Return an object's ID. UserError if it has none."""
    identity = entry.get(name) if isinstance(entry, Mapping) else None
    if not isinstance(identity, str) or not identity:
        raise UserError(f"KFP answers with an object that has no {name}", "check the address")
    return identity


def warn_of_nodes(spec: Mapping[str, Any]) -> None:
    """Say which steps fit no node of the kubeconfig's cluster, if KFP runs there: their pods would wait for ever."""
    if find_spec("kubernetes") is None:  # in the image mlgo-toolchain
        return
    from pipelines.cluster.kubernetes_checks import Cluster

    try:
        cluster = Cluster("", "")
    except UserError:  # no kubeconfig
        return
    here = cluster.check_operators(ray=False)[0].status == "ok"
    if here and (finding := cluster.too_large_steps(spec)):
        say(f"warning: the cluster at {cluster.host}: {finding.what}")
        say(f"  {finding.remedy}")


def _is_older(version: tuple[int, int] | None, other: tuple[int, int]) -> bool:
    """Return whether a server's version is older; one that is unknown is taken for a new one."""
    return version is not None and version < other


def _needs(
    what: str, needed: tuple[int, int], version: tuple[int, int] | None, remedy: str = "leave it out"
) -> UserError:
    """Return the error for something that the server is too old for."""
    needed_text, server_text = (".".join(map(str, numbers or ())) for numbers in (needed, version))
    return UserError(f"{what} needs KFP {needed_text}, and the server is {server_text}", remedy)
