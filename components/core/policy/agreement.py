"""Agreement between the forms of a policy: weights, policy.json, policy.so, SavedModel, TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core.formats.policy import POLICY_JSON, load_policy_info
from components.core.policy.dense import WEIGHTS_FILE, DensePolicy, read_dense
from components.core.policy.feature_encoding import num_elements
from components.core.policy.forms import FORM_FILES, Form, run_form
from components.core.policy.generated.shared_object import SHARED_OBJECT
from components.platform.errors import UserError

FORM_TITLES: Mapping[Form, str] = {
    "native": "generated C++",
    "saved_model": "SavedModel",
    "tflite": "TensorFlow Lite",
}

TIE_TOLERANCE = 1e-5
"""Forms may differ where the two greatest logits differ by less, times the greatest |logit| if that is above 1.

float32 sums of the same hundred terms in another order differ by about a tenth of it.
"""

RANDOM_DECISIONS = 500


@dataclass(frozen=True)
class Agreement:
    """Agreement of one form with the reference on N decisions.

    Attributes:
        differences: indices of the decisions on which they differ, without ties.
        ties: indices of those on which they differ and both actions are right: their logits differ by TIE_TOLERANCE.
        max_error: the greatest difference of a logit.
    """

    form: str
    decisions: int
    differences: NDArray[np.intp]
    ties: NDArray[np.intp]
    max_error: float


def require_agreement(directory: Path) -> DensePolicy:
    """Return the weights of a policy whose policy.json and policy.so are of the same policy.

    policy.so decides in a confined child about random decisions, because no trace is needed for that.

    Raises:
        UserError: a form is missing or damaged, or they are of different policies.
    """
    policy = read_dense(directory)
    require_description(directory, policy)
    for agreement in compare_forms(directory, policy, random_decisions(policy, RANDOM_DECISIONS, 0), ("native",)):
        if len(agreement.differences):
            raise UserError(
                f"{directory}: {SHARED_OBJECT} and {WEIGHTS_FILE} are of different policies: they differ in "
                f"{len(agreement.differences)} of {agreement.decisions} decisions",
                "export the policy again: mlgo policy export --output",
            )
    return policy


def require_one_policy(directory: Path) -> None:
    """Raise UserError if policy.json and weights.npz of a policy are of different policies, or the weights damaged.

    Imported policies, which have no weights, and policies without policy.json are accepted.
    """
    if (directory / WEIGHTS_FILE).exists() and (directory / POLICY_JSON).exists():
        require_description(directory, read_dense(directory))


def random_decisions(policy: DensePolicy, count: int, seed: int) -> dict[str, NDArray[np.generic]]:
    """Return features of `count` decisions, [count, *shape]: numbers at and next to the boundaries of the weights."""
    random = np.random.default_rng(seed)
    columns: dict[str, NDArray[np.generic]] = {}
    for feature in policy.features:
        shape = (count, *feature.shape)
        values: NDArray[Any]
        if feature == policy.mask:
            values = random.integers(0, 2, shape)
            values.reshape(count, -1)[:, 0] |= ~values.reshape(count, -1).any(axis=1)  # one action at least
        elif feature in policy.tensor_features:
            values = random.normal(size=shape)
        else:
            values = random.choice(policy.buckets[feature.name], shape) + random.integers(-1, 2, shape)
        scalar = num_elements(feature) == 1
        columns[feature.name] = (values.reshape(count) if scalar else values).astype(feature.dtype)
    for name, limit in policy.limits.items():
        # Beyond any limit the network does not decide: half of the decisions are within all of them.
        columns[name][::2] = np.minimum(columns[name][::2], limit)
    return columns


def compare_forms(
    directory: Path, policy: DensePolicy, columns: Mapping[str, NDArray[np.generic]], forms: Sequence[Form]
) -> list[Agreement]:
    """Compare forms of a policy with `policy`, its weights, on these decisions. UserError as `compare`."""
    reference = policy.logits(columns)
    agreements = []
    for form in forms:
        output = run_form(form, directory, columns)
        if form == "native":
            features = [spec.to_json() for spec in policy.features]
            if (output.description.get("problem"), output.description.get("features")) != (policy.problem, features):
                raise UserError(
                    f"{directory}: {SHARED_OBJECT} and {WEIGHTS_FILE} are of different policies",
                    "export the policy again",
                )
        if output.logits.shape != reference.shape:
            raise UserError(
                f"{directory / FORM_FILES[form]} has {output.logits.shape[1]} actions, the weights have "
                f"{reference.shape[1]}",
                "export the policy again",
            )
        decided = None if form == "native" else output.decisions
        agreements.append(compare_to_reference(FORM_TITLES[form], reference, output.logits, decided))
    return agreements


def require_description(directory: Path, policy: DensePolicy) -> None:
    """Raise UserError unless policy.json describes the policy of weights.npz."""
    info = load_policy_info(directory)
    for what, described, actual in (
        ("the problem", info.problem, policy.problem),
        ("the features", info.features, policy.features),
        ("the number of actions", info.num_actions, policy.num_actions),
        ("the trained limits", info.trained_limits, policy.limits),
    ):
        if described != actual:
            differ = "differs" if isinstance(described, str | int) else "differ"
            values = f", {described} and {actual}" if isinstance(described, str | int) else ""
            raise UserError(
                f"{directory}: {POLICY_JSON} and {WEIGHTS_FILE} are of different policies: {what} {differ}{values}",
                "use a complete copy of one policy",
            )


def compare_to_reference(
    form: str, reference: NDArray[np.float32], logits: NDArray[np.float32], decisions: NDArray[np.int64] | None = None
) -> Agreement:
    """Compare logits [N, A], and decisions [N] if the form computes these itself, with the reference [N, A]."""
    actions = logits.argmax(axis=1) if decisions is None else decisions
    ordered = np.sort(reference, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    tied = margin < TIE_TOLERANCE * np.maximum(1.0, np.where(np.isneginf(reference), 0, np.abs(reference)).max(axis=1))
    differ = actions != reference.argmax(axis=1)
    equal = logits == reference  # includes -inf, the logit of actions that a mask excludes
    return Agreement(
        form,
        len(reference),
        np.flatnonzero(differ & ~tied),
        np.flatnonzero(differ & tied),
        float(np.abs(np.subtract(logits, reference, where=~equal, out=np.zeros_like(reference))).max()),
    )
