"""Run a compiled pipeline with KFP's own local runner; a program for the environment `pipelines`.

    python -m tests.servers.kfp_local PIPELINE.yaml ROOT CACHE JSON-OF-PARAMETERS

ROOT stands for the bucket `mlpipeline` of MinIO: containers see the URIs of artifacts and the directories that they see
in a cluster, where KFP's launcher copies between the two. CACHE is the cache directory of steps that build clangs;
other steps have caches of their own, as in a cluster.

The DockerRunner of KFP 2.17 removes containers by itself and may report a failed one as succeeded, so callers must
check the content of ROOT afterwards.
"""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import docker
from kfp import components, local
from kfp.local import placeholder_utils

BUCKET = "mlpipeline"


CACHED = 'case "$*" in *" toolchain --mode "*) export MLGO_CACHE_DIR={cache} ;; esac; exec "$@"'


def main(pipeline: str, root: str, cache: str, parameters: str) -> None:
    """Run the containers as user 1000 with only ROOT, CACHE and /tmp writable, as in README.md."""
    mounts = [docker.types.Mount(f"/minio/{BUCKET}", root, type="bind"), docker.types.Mount(cache, cache, type="bind")]
    runner = local.DockerRunner(
        user="1000:1000",
        read_only=True,
        tmpfs={"/tmp": "exec"},
        cap_drop=["ALL"],
        # On a cluster a component's command replaces the image's entry point; this runner appends the command to it.
        entrypoint=["sh", "-c", CACHED.format(cache=shlex.quote(cache)), "sh"],
        mounts=mounts,
    )
    local.init(runner=runner, pipeline_root=root, raise_on_error=True)
    give_uris_of_minio(root)
    components.load_component_from_file(pipeline)(**json.loads(parameters))


def give_uris_of_minio(root: str) -> None:
    """Make the runner replace the placeholder .uri by minio://BUCKET/PATH and .path by /minio/BUCKET/PATH.

    It replaces both by the path below its root.
    """
    replace_placeholders = placeholder_utils.replace_placeholders

    def replaced(full_command: list[str], executor_input_dict: dict[str, Any], **task: Any) -> list[str]:
        for part in executor_input_dict.values():
            for listed in part.get("artifacts", {}).values():
                for artifact in listed["artifacts"]:
                    artifact["uri"] = artifact["uri"].replace(root, f"minio://{BUCKET}")
        command = []
        for element in full_command:
            replaced = replace_placeholders(full_command=[element], executor_input_dict=executor_input_dict, **task)
            is_path = element.endswith(".path}}")
            command += [text.replace("minio://", "/minio/") if is_path else text for text in replaced]
        return command

    placeholder_utils.replace_placeholders = replaced


if __name__ == "__main__":
    main(*sys.argv[1:])
