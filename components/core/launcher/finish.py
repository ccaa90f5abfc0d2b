"""Exit handler of the pipeline: reports how it ended in the log, and to a webhook if one is configured."""

from __future__ import annotations

import click
from msgspec import Struct

from components.core.console import run_step, say
from components.core.launcher.notify import notify
from components.core.storage.input_files import parse_json, typed


class _Error(Struct):
    message: str = ""


class _FinalStatus(Struct):
    """KFP's PipelineTaskFinalStatus (api/v2alpha1/pipeline_spec.proto), the parts that are reported."""

    state: str
    error: _Error | None = None
    pipelineJobResourceName: str = ""


@click.command()
@click.option("--status", required=True, help="KFP's PipelineTaskFinalStatus in JSON.")
def main(status: str) -> None:
    """Report how a pipeline ended, in the log and to the webhook in $MLGO_NOTIFY_URL.

    \b
    Example:
      python -m components.core.launcher.finish --status '{"state": "SUCCEEDED"}'
    """
    remedy = "pass the JSON that KFP passes"
    document = parse_json(status, "--status", remedy)
    final = typed(document, _FinalStatus, "--status", "a final status of KFP", remedy)
    error = final.error.message if final.error else ""
    say(f"the pipeline ended: {final.state}" + (f": {error}" if error else ""))
    notify({"pipeline": final.pipelineJobResourceName, "state": final.state, "error": error})


if __name__ == "__main__":
    run_step(main)
