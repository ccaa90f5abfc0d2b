"""`mlgo retrain register`, and the options of other commands that register a policy."""

from __future__ import annotations

from functools import partial

import click

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.uri import USAGE
from pipelines.cli.server_options import add_options, option
from pipelines.retrain.registry import parse_registry
from pipelines.retrain.registry.entry import ALIAS, ModelRegistry, registry_entry
from pipelines.retrain.state import load_state

_OPTIONS = (
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
registry_options = partial(add_options, options=_OPTIONS)


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


@click.command(short_help="Register the deployed policy in a model registry.")
@click.option("--state", required=True, metavar="URI", help=f"State of retraining: {USAGE}.json.")
@registry_options
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
