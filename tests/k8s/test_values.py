"""The values of an overlay's values.yaml reach every manifest that they are for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

K8S = Path(__file__).parents[2] / "k8s"
KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl, which renders kustomizations, is not installed")


def render(tree: Path, overlay: str) -> str:
    """Return what would be applied, without the command of the example of a RayJob, which has places of its own."""
    command = [str(KUBECTL), "kustomize", str(tree / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    manifests = list(yaml.safe_load_all(done.stdout))
    for manifest in manifests:
        if manifest["kind"] == "RayJob":
            del manifest["spec"]["entrypoint"]
    assert "values" not in {manifest["metadata"]["name"] for manifest in manifests}, "they are not applied themselves"
    return yaml.safe_dump_all(manifests, width=1000)


@pytest.mark.parametrize("overlay", ["gke", "plain"])
def test_every_value_replaces_its_default_everywhere(overlay: str, tmp_path: Path) -> None:
    tree = tmp_path / "k8s"
    shutil.copytree(K8S, tree)
    path = tree / "overlays" / overlay / "values.yaml"
    document = yaml.safe_load(path.read_text())
    defaults = document["data"]
    before = render(tree, overlay)
    changed = {name: f"changed-{number}" for number, name in enumerate(defaults)}
    path.write_text(yaml.safe_dump({**document, "data": changed}))
    after = render(tree, overlay)
    for name, default in defaults.items():
        assert before.count(default) == after.count(changed[name]) > 0, name
    assert "CHANGE-ME" not in after
