"""Reuse of earlier results on a server: the content behind a run's paths and URIs becomes part of the cache's key.

A server identifies a step by its image, command line, parameters and input artifacts. A parameter that names content,
such as gs://BUCKET/corpus, stays while the content changes, so the compiled pipeline lets no step with such a parameter
be reused, and nothing after it, whose inputs are then new artifacts. Where the content can be identified at submission,
its digest goes into the command line, and the step may be reused. Content is identified as for local runs
(pipelines.local.cache_inputs).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from components.core.projects.recipe import load_recipes
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.digests import json_digest
from components.platform.storage.downloads.archive import is_archive_url
from components.platform.storage.uri import ObjectUri, in_object_storage, parse_location
from pipelines.local.cache_inputs import fetch_recipe, identify_recipe, identify_remote
from pipelines.parameters.tables import BY_NAME
from pipelines.spec import expect_pipeline
from pipelines.spec_changes import dags
from pipelines.submit.options import Package

CONTENT_OPTION = "--content"
"""The launcher's option that has the digest; the launcher itself does not use it."""
_PARAMETERS = {
    one.step_option.removeprefix("--").replace("-", "_"): one.name for one in BY_NAME.values() if one.reference
}
"""Input of a step that names content -> the pipeline's parameter that it gets."""
_OURS = frozenset({"mlgo-training", "mlgo-sdk"})
"""`pipelineInfo.name` of the pipelines whose inputs these are."""
_EFFECTS = frozenset({"state", "status"})
"""Inputs of steps that run for what they change, so their results are not reused."""


class _UnknownContent(Exception):
    """The content that a parameter names cannot be identified; the text says why."""


def reuse_results(package: Package, values: Mapping[str, Any]) -> Package:
    """Return a package whose steps may be reused where the content that they read is the same, and say where not."""
    spec, reasons = reuse_by_content(package.spec, values)
    for reason in reasons:
        say(f"not reused from earlier runs: steps that depend on --param {reason}")
    return Package(spec, package.platform)


@expect_pipeline
def reuse_by_content(spec: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a copy of a PipelineSpec whose steps may be reused if the content that they read is the same.

    Args:
        spec: another pipeline than this project's is not changed.
        values: all parameters of the run, with defaults.

    Returns:
        The copy; and why steps are not reused, a text for each parameter that is the reason.
    """
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    identified: dict[str, tuple[str, ...] | _UnknownContent] = {}
    if spec["pipelineInfo"]["name"] not in _OURS:
        return copy, []
    for tasks in dags(copy):
        for task in tasks.values():
            component = copy["components"][task["componentRef"]["name"]]
            executor = copy["deploymentSpec"]["executors"].get(component.get("executorLabel", ""), {})
            inputs = component.get("inputDefinitions", {}).get("parameters", {}).keys()
            named = sorted({_PARAMETERS[name] for name in inputs if name in _PARAMETERS})
            if "container" not in executor or not named or inputs & _EFFECTS:
                continue
            for name in named:
                if name not in identified:
                    identified[name] = _identified(name, str(values.get(name, "")))
            contents = {name: content for name in named if (content := identified[name])}
            if any(isinstance(content, _UnknownContent) for content in contents.values()):
                continue
            task["cachingOptions"] = {"enableCache": True}
            if contents:
                arguments = executor["container"]["args"]
                arguments[0:0] = [CONTENT_OPTION, json_digest(contents)]
    return copy, [f"{name} {content}" for name, content in identified.items() if isinstance(content, _UnknownContent)]


def _identified(name: str, value: str) -> tuple[str, ...] | _UnknownContent:
    """Return what identifies the content that a parameter names; nothing if its value does that itself."""
    try:
        if name == "recipe" and value:
            return _recipe(value)
        if not value or value in BY_NAME[name].words or (name == "oversample_modules" and value.startswith("[")):
            return ()
        reference = BY_NAME[name].reference
        if reference and reference.archives and is_archive_url(value):
            return (value,)  # with its checksum, without which the step refuses it
        if not in_object_storage(value):
            raise _UnknownContent(f"is {value}, a path that only the steps see")
        if name in ("compile_commands", "input"):
            raise _UnknownContent("names files that only the step sees")
        uri = parse_location(value)
        assert isinstance(uri, ObjectUri)
        return identify_remote(uri)
    except UserError as error:
        return _UnknownContent(f"cannot be read here: {error.problem}")
    except _UnknownContent as unknown:
        return unknown


def _recipe(value: str) -> tuple[str, ...]:
    if value not in BY_NAME["recipe"].words and not in_object_storage(value):
        raise _UnknownContent(f"is {value}, a path that only the steps see")
    location = fetch_recipe(value)
    projects = load_recipes(location).projects
    sources = [source for project in projects for source in (project.source, *(one for _name, one in project.requires))]
    if any(source.kind == "path" for source in sources):
        raise _UnknownContent("has a source tree that only the step sees")
    return identify_recipe(location)
