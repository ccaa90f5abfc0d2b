"""Run a compiled pipeline with KFP's own local runner; a program for the environment `pipelines`.

    python -m tests.kfp_local PIPELINE.yaml ROOT JSON-OF-PARAMETERS

The DockerRunner of KFP 2.17 removes containers by itself and may report a failed one as succeeded, so callers must
check the content of ROOT afterwards.
"""

from __future__ import annotations

import json
import sys

from kfp import components, local


def main(pipeline: str, root: str, parameters: str) -> None:
    """Run the containers as user 1000 with only ROOT and /tmp writable, as in README.md."""
    # On a cluster a component's command replaces the image's entry point; this runner appends the command to it.
    runner = local.DockerRunner(
        user="1000:1000", read_only=True, tmpfs={"/tmp": "exec"}, cap_drop=["ALL"], entrypoint=["env"]
    )
    local.init(runner=runner, pipeline_root=root, raise_on_error=True)
    components.load_component_from_file(pipeline)(**json.loads(parameters))


if __name__ == "__main__":
    main(*sys.argv[1:])
