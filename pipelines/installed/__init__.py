"""The package `mlgo_pipeline` of an installed wheel, with the folders `components` and `pipelines` (wheel_layout.py).

They are not packages of this one: modules import each other as `components.X` and `pipelines.X`, in a wheel as in the
repository. So only a process that runs this project's code has its directory in sys.path, before all others:
`main` adds it, `components/platform/processes/python_module.py` does for the processes that this one starts. Packages
of these names in site-packages or in the working directory are neither hidden nor imported.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Entry point of the console script `mlgo`."""
    here = Path(__file__).resolve().parent
    in_wheel = (here / "components").is_dir()
    sys.path.insert(0, str(here if in_wheel else here.parents[1]))
    from pipelines.cli.main import main as mlgo  # only now can it be found

    mlgo()
