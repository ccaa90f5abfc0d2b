"""Names of the functions of inlining decisions, from the optimization record of a clang without our advisors.

LLVM's interactive mode does not send callers and callees. Its inlining advisor (llvm/lib/Analysis/MLInlineAdvisor.cpp,
pass "inline-ml") writes a remark for each decision, with both names and the features, and also remarks on calls that
the model does not decide about.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy.typing as npt
import yaml

from components.core import problems
from components.core.compiler.compile_outputs import read_output
from components.core.formats.names import replace_invalid_utf8

_PASS = "inline-ml"
_DECISION = "ShouldInline"
_MAX_DEPTH = 8
"""A record nests four deep."""
_COST, _THRESHOLD = problems.get("inlining").policy.heuristic or ("", "")
_FIELD = re.compile(rf"^  - ({_COST}|{_THRESHOLD}|{_DECISION}): +'?(-?\w+)'?$".encode(), re.MULTILINE)
"""A field that the comparison with LLVM's heuristic needs. YAML's parser takes longer than the compile."""


@dataclass(frozen=True)
class InlineRemark:
    """A remark of LLVM's inlining advisor.

    Attributes:
        arguments: the features' values, and "ShouldInline", as text.
    """

    caller: str
    callee: str
    arguments: Mapping[str, str]

    def describes(self, features: Mapping[str, int], action: int) -> bool:
        """Return whether it has these features and this decision."""
        if self.arguments.get(_DECISION) != ("true" if action else "false"):
            return False
        return all(self.arguments.get(name, str(value)) == str(value) for name, value in features.items())


def remark_flags(record: Path) -> list[str]:
    """Return the cc1 flags that write these remarks to `record`, which appears only if there are some."""
    return ["-opt-record-file", str(record), "-opt-record-passes", _PASS, "-opt-record-format", "yaml"]


def read_inline_remarks(record: Path) -> list[InlineRemark]:
    """Read the remarks that have a decision, in the order of the compile; [] without a readable record."""
    try:
        text = replace_invalid_utf8(read_output(record).decode("utf-8", "surrogateescape"))
        documents = list(yaml.load_all(text, _Loader)) if _is_plain(text) else []
    except (FileNotFoundError, yaml.YAMLError):
        return []
    remarks = []
    for document in documents:
        if not isinstance(document, dict):
            continue
        arguments = {
            k: str(v) for entry in document.get("Args") or () if isinstance(entry, dict) for k, v in entry.items()
        }
        if _DECISION in arguments and "Callee" in arguments and "Function" in document:
            remarks.append(InlineRemark(str(document["Function"]), arguments.pop("Callee"), arguments))
    return remarks


def _is_plain(text: str) -> bool:
    """Return whether a YAML stream is no deeper than a record of LLVM, whose parser would end this process by a deep
    one, and has no aliases, which expand to any size."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH or isinstance(event, yaml.AliasEvent):
            return False
    return True


def count_departures(record: Path) -> tuple[int, int]:
    """Return how many decisions a record has, and in how many of them LLVM's heuristic would decide otherwise; (0, 0)
    without a readable record, or where the clang does not write the heuristic's cost and threshold."""
    try:
        content = read_output(record)
    except FileNotFoundError:
        return 0, 0
    decisions = departures = 0
    fields: dict[bytes, bytes] = {}
    for match in _FIELD.finditer(content):
        fields[match[1]] = match[2]
        if match[1] == _DECISION.encode():
            cost, threshold = fields.get(_COST.encode()), fields.get(_THRESHOLD.encode())
            if cost is not None and threshold is not None:
                decisions += 1
                departures += (int(cost) < int(threshold)) != (match[2] == b"true")
            fields = {}
    return decisions, departures


def name_decisions(
    remarks: Sequence[InlineRemark], columns: Mapping[str, npt.NDArray[Any]], action: npt.NDArray[Any]
) -> list[tuple[str, str]]:
    """Return caller and callee of each of N decisions; [] if the remarks do not have all of them in their order.

    Args:
        columns: feature name -> [N, 1] or [N].
        action: [N], 1 to inline.
    """
    scalars = {name: values.reshape(len(action), -1) for name, values in columns.items()}
    integers = {name: v[:, 0].tolist() for name, v in scalars.items() if v.shape[1] == 1 and v.dtype.kind == "i"}
    names: list[tuple[str, str]] = []
    rest = iter(remarks)
    for i, decided in enumerate(action.tolist()):
        features = {name: values[i] for name, values in integers.items()}
        remark = next((remark for remark in rest if remark.describes(features, decided)), None)
        if remark is None:
            return []
        names.append((remark.caller, remark.callee))
    return names


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads every scalar as text, and documents with tags such as !Missed."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


_Loader.add_multi_constructor("!", lambda loader, _kind, node: loader.construct_mapping(node, deep=True))
