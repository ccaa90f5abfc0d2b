"""Values of the modules of any corpus under LLVM's heuristic and under a policy, without a verdict.

The file is the performance report of ml-compiler-opt's demos (generate_default_trace.py --output_performance_path).
"""

from __future__ import annotations

from contextlib import closing

from components.core import problems
from components.core.formats.corpus import Part, load_corpus
from components.core.formats.toolchain import load_toolchain
from components.core.objectives import OBJECTIVES
from components.evaluation.config import EvaluationConfig
from components.evaluation.inputs import check_policy, load_release
from components.evaluation.measure import measure
from components.evaluation.measurements import Measurements, report_csv
from components.evaluation.variants import plan_variants
from components.platform.errors import UserError
from components.platform.storage.directory import make_directory
from components.platform.storage.output_files import replace_text
from components.platform.workers.factory import make_pool


def measure_modules(config: EvaluationConfig, part: Part) -> Measurements:
    """Compile the modules of a part of a corpus, and write `config.output`, a CSV file, atomically.

    A corpus without a split has the part "all" only.

    Raises:
        UserError: an input is missing, damaged, or does not fit the others; the part has no modules; too many modules
            fail to compile.
    """
    objective = OBJECTIVES[problems.get(config.problem).objective]
    corpus = load_corpus(config.corpus)
    modules = corpus.split(part)
    if not modules:
        raise UserError(f"the corpus in {corpus.directory} has no modules in part {part!r}", "choose another --part")
    training = load_toolchain(config.toolchain).require_mode("training")
    check_policy(config.policy, config, training)
    release = load_release(config.release_toolchain, config.policy, training) if config.release_toolchain else None
    variants = plan_variants(objective, config, training, release)
    make_directory(config.output.parent, config.output)
    with closing(make_pool(config.workers)) as pool:
        measured = measure(pool, config, objective, variants, modules, heldout_projects=())
    replace_text(config.output, report_csv(measured))
    return measured
