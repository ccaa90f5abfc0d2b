"""`mlgo retrain register`, and the options of other commands that register a policy."""

from __future__ import annotations

import click

from components.core.console import UserError, say
from components.core.storage.uri import USAGE
from pipelines.cli.server import option, options
from pipelines.retrain.registry.entry import ALIAS, ModelRegistry, registry_entry
from pipelines.retrain.registry.kubeflow import KubeflowRegistry
from pipelines.retrain.registry.vertex import VertexRegistry
from pipelines.retrain.state import load_state
from pipelines.submit.vertex import VertexServer

_VERTEX = "vertex:"
REGISTRY_OPTIONS = (
    option(
        "--registry",
        metavar="vertex:PROJECT/REGION|URL",
        help="Model registry where the deployed policy is registered: Vertex AI's, or Kubeflow's by its URL.",
    ),
    option("--model", metavar="NAME", help="Name of the model in the registry.  [default: mlgo-PROBLEM]"),
    option(
        "--serving-image",
        metavar="IMAGE",
        help="Vertex AI: container image of the model, if the service asks for one. Policies are not served.",
    ),
)


def parse_registry(text: str, serving_image: str = "") -> ModelRegistry:
    """Return the registry that --registry names. UserError if it names none."""
    if text.startswith(_VERTEX):
        project, slash, region = text.removeprefix(_VERTEX).partition("/")
        if project and slash and region and "/" not in region:
            return VertexRegistry(VertexServer(project, region), serving_image)
    elif text.startswith(("http://", "https://")):
        if serving_image:
            raise UserError(
                f"--serving-image {serving_image}: Kubeflow's Model Registry has no such image", "leave it out"
            )
        return KubeflowRegistry(text)
    raise UserError(
        f"--registry {text!r} is neither vertex:PROJECT/REGION nor a URL",
        "for example --registry vertex:my-project/europe-west4, or --registry http://localhost:8080",
    )


def register_deployed(state: str, registry: ModelRegistry, model: str) -> None:
    """Register the policy that a state has deployed, and name it the deployed version.

    Raises:
        UserError: nothing is deployed, or the registry refuses. The state is as it was.
    """
    deployed = load_state(state).deployed
    if deployed is None:
        raise UserError(f"nothing is deployed in {state}", "promote a policy first")
    try:
        version = registry.deploy(registry_entry(deployed, model))
    except UserError as error:
        raise UserError(
            f"{error.problem}\n  the state deploys {deployed.policy}; only the registry does not",
            f"{error.remedy}; then run mlgo retrain register",
        ) from None
    say(f"registered: {version} is {ALIAS}")


@click.command()
@click.option("--state", required=True, metavar="URI", help=f"State of retraining: {USAGE}.json.")
@options(REGISTRY_OPTIONS)
@click.pass_context
def register(context: click.Context, state: str, registry: str, model: str, serving_image: str) -> None:
    """Register the deployed policy in a model registry, with its model card and figures.

    Each promoted policy is a version of one model. Repeating the command changes nothing; after a rollback it moves the
    name `deployed` back to the earlier version.

    \b
    Examples:
      mlgo retrain register --state gs://my-bucket/retrain.json --registry vertex:my-project/europe-west4
      mlgo retrain register --state s3://my-bucket/retrain.json --registry http://localhost:8080
    """
    if not registry:
        raise click.UsageError("Missing option '--registry'.", context)
    register_deployed(state, parse_registry(registry, serving_image), model)
