"""Runs a compiled pipeline with KFP's own local runner. A program for the environment `pipelines`.

    python -m tests.kfp_local PIPELINE.yaml ROOT JSON-OF-PARAMETERS

KFP's DockerRunner of 2.17 removes containers by itself and may report one as succeeded that failed, so its word is not
taken for anything: who calls this looks at what is in ROOT afterwards.
"""

from __future__ import annotations

import json
import sys

from kfp import components, local


def main(pipeline: str, root: str, parameters: str) -> None:
    """Containers run as user 1000 with nothing writable but ROOT and /tmp, as in README.md."""
    # On a cluster a component's command takes the place of the image's entry point; this runner appends it there.
    runner = local.DockerRunner(
        user="1000:1000", read_only=True, tmpfs={"/tmp": "exec"}, cap_drop=["ALL"], entrypoint=["env"]
    )
    local.init(runner=runner, pipeline_root=root, raise_on_error=True)
    components.load_component_from_file(pipeline)(**json.loads(parameters))


if __name__ == "__main__":
    main(*sys.argv[1:])
