"""mlgo-utils' tools on the same inputs as ours, and the files that both write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

OBJCOPY = "/usr/lib/llvm-19/bin/llvm-objcopy"


def run_mlgo_utils(tool: str, *flags: object, cwd: Path | None = None) -> None:
    command = [sys.executable, "-m", f"mlgo.corpus.{tool}", *map(str, flags)]
    subprocess.run(command, check=True, capture_output=True, cwd=cwd)


def extract_ir(output: Path, *flags: object, cwd: Path | None = None) -> None:
    """Run extract_ir with our flags, translated to its spelling."""
    output.mkdir()
    options = [f"--{flag[2:].replace('-', '_')}" if flag.startswith("--") else flag for flag in map(str, flags)]
    run_mlgo_utils(
        "extract_ir", f"--llvm_objcopy_path={OBJCOPY}", "--num_workers=2", f"--output_dir={output}", *options, cwd=cwd
    )


def files(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def sort_modules(corpus: Path) -> None:
    """Sort the modules that mlgo-utils lists in the file system's order, and we by name."""
    path = corpus / "corpus_description.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps(description | {"modules": sorted(description["modules"])}, indent=2))
