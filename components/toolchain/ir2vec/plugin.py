"""The IR2Vec vocabulary of a plugin: made or read, and as a header that the plugin is built with."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.core.formats.embeddings import DIGEST, VOCABULARY, uses_embeddings
from components.core.formats.policy import load_policy_info
from components.platform.errors import UserError
from components.platform.storage.output_files import replace_text
from components.toolchain.config import ToolchainConfig
from components.toolchain.ir2vec.vocabulary import Vocabulary, random_vocabulary, read_vocabulary
from components.toolchain.sdk import Sdk, apt_line

HEADER = "IR2VecVocabulary.h"
TIMEOUT_S = 60.0


def prepare_embeddings(
    config: ToolchainConfig, sdk: Sdk, policies: Mapping[str, Path], tree: Path, output: Path
) -> tuple[Path | None, dict[str, str]]:
    """Write the vocabulary to build into a plugin, if any: the given one, or that of the policy to embed.

    Returns:
        The directory of HEADER, and the entry of `Toolchain.built`; None and {} without embeddings.
    """
    if config.mode == "training":
        if not config.ir2vec_vocab:
            return None, {}
        vocabulary = make_vocabulary(config.ir2vec_vocab, sdk, output / VOCABULARY)
    else:
        policy = policies["inlining"]
        if not uses_embeddings(load_policy_info(policy).features):
            return None, {}
        vocabulary = read_vocabulary(policy / VOCABULARY)
    return write_header(vocabulary, tree / "ir2vec"), {DIGEST: vocabulary.digest}


def make_vocabulary(source: Path | str, sdk: Sdk, path: Path) -> Vocabulary:
    """Write RANDOM or a copy of the file `source` to `path` and return it. UserError if the file is no vocabulary."""
    content = read_vocabulary(source).content if isinstance(source, Path) else random_vocabulary(_list_entities(sdk))
    path.write_bytes(content)
    return read_vocabulary(path)


def _list_entities(sdk: Sdk) -> list[str]:
    """Return the names of the entities that this LLVM embeds, in its order."""
    program = sdk.prefix / "bin" / "llvm-ir2vec"
    if not program.exists():
        raise UserError(f"{program} is missing", apt_line({f"llvm-{sdk.major}"}))
    bitcode = _run([sdk.clang, "-x", "c", "-emit-llvm", "-c", "/dev/null", "-o", "-"])
    listed = _run([program, "entities", "-"], bitcode)
    # The first line is the number of the others: name, tab, index.
    return [line.split("\t")[0] for line in listed.decode().splitlines()[1:]]


def _run(command: Sequence[str | Path], stdin: bytes = b"") -> bytes:
    try:
        return subprocess.run(command, input=stdin, capture_output=True, check=True, timeout=TIMEOUT_S).stdout
    except subprocess.CalledProcessError as error:
        problem = error.stderr.decode(errors="replace").strip()[-2000:] or f"status {error.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    raise UserError(f"{command[0]} failed: {problem}", "check that LLVM's programs run here, or pass a vocabulary file")


def write_header(vocabulary: Vocabulary, below: Path) -> Path:
    """Write HEADER into a directory below `below` that is named by the vocabulary, and return the directory."""
    entries = [
        f"    {{{json.dumps(entity)}, {{{', '.join(map(float.hex, vector))}}}}},\n"
        for entity, vector in vocabulary.vectors.items()
    ]
    text = (
        "// Written by mlgo-pipeline: a vocabulary of IR2Vec.\n"
        f"static constexpr unsigned VocabularyDimension = {vocabulary.dimension};\n"
        "struct VocabularyEntry {\n  const char *Key;\n  double Vector[VocabularyDimension];\n};\n"
        f"static const VocabularyEntry VocabularyEntries[] = {{\n{''.join(entries)}}};\n"
    )
    directory = below / hashlib.sha256(text.encode()).hexdigest()[:16]
    directory.mkdir(parents=True, exist_ok=True)
    header = directory / HEADER
    if not header.exists():  # ninja compares modification times
        replace_text(header, text)
    return directory
