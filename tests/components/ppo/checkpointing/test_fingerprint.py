"""Changes with which a training may resume, and changes that require another root directory."""

import json
from dataclasses import replace

import gin
import pytest

from components.platform.errors import UserError
from components.platform.storage import write_manifest
from components.ppo.checkpointing.fingerprint import EarlierCredit, folder_of, require_same, training_fingerprint
from components.ppo.config import TrainingConfig
from components.ppo.learners.factory import configure


@pytest.fixture
def config(tmp_path):
    for name in ("corpus", "toolchain", "trace", "warmstart"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        write_manifest(tmp_path / name)
    (tmp_path / "oversampling.json").write_text(json.dumps({"regressed": ["b", "a"], "deployed": 1}))
    (tmp_path / "more.gin").write_text("PpoParameters.clip_epsilon = 0.1\n")
    inputs = {name: tmp_path / name for name in ("corpus", "toolchain", "trace", "warmstart")}
    yield TrainingConfig(
        **inputs,
        root_dir=tmp_path / "root",
        output=tmp_path / "policy",
        iterations=3,
        oversample_modules=tmp_path / "oversampling.json",
        gin_files=(tmp_path / "more.gin",),
    )
    gin.clear_config()


def fingerprint_of(config):
    gin.clear_config()
    configure(config)
    return training_fingerprint(config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("minutes", 9.0),
        ("iterations", 99),
        ("workers", "local:7"),
        ("timeout_s", 1.0),
        ("max_checkpoints", 9),
        ("max_failed_fraction", 0.5),
        ("checkpoint_every", 7),
        ("output", "elsewhere"),
    ],
)
def test_duration_and_place_may_change(config, field, value):
    assert fingerprint_of(config) == fingerprint_of(replace(config, **{field: value}))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("modules", 3, "--modules 16 (now 3)"),
        ("samples", 9, "--samples 8 (now 9)"),
        ("seed", 7, "--seed 0 (now 7)"),
        ("credit_assignment", "module", "--credit-assignment counterfactual (now module)"),
        ("module_weight", 2.0, "--module-weight 1.0 (now 2.0)"),
        ("algorithm", "ppo", "--algorithm dqn (now ppo)"),
        ("size_of", "modules", "--size-of linked (now modules)"),
        ("validate_every", 1, "--validate-every 5 (now 1)"),
        ("ema_decay", 0.0, "--ema-decay 0.7 (now 0.0)"),
        ("gin_bindings", ("PpoParameters.clip_epsilon=0.3",), "another gin settings"),
        ("gin_files", (), "another gin settings"),
        ("oversample_modules", None, "another list of modules to oversample"),
    ],
)
def test_options_that_determine_the_result_may_not_change(config, field, value, message):
    if (field, value) == ("credit_assignment", "module"):
        config = replace(config, algorithm="ppo")  # DQN learns from counterfactuals only
    before, after = fingerprint_of(config), fingerprint_of(replace(config, **{field: value}))
    assert folder_of(before) != folder_of(after)
    require_same(config.root_dir, before, before)
    with pytest.raises(UserError, match="was started with") as caught:
        require_same(config.root_dir, before, after)
    assert message in caught.value.problem and "--root-dir" in caught.value.remedy


@pytest.mark.parametrize("name", ["corpus", "toolchain", "trace", "warmstart"])
def test_artifacts_are_identified_by_content(config, name):
    before = fingerprint_of(config)
    directory = getattr(config, name)
    moved = directory.rename(directory.with_name("moved"))
    assert fingerprint_of(replace(config, **{name: moved})) == before
    (moved / "file").write_text("other")
    write_manifest(moved)
    with pytest.raises(UserError, match=f"with another {name}"):
        require_same(config.root_dir, before, fingerprint_of(replace(config, **{name: moved})))


def test_files_are_identified_by_content(config, tmp_path):
    before = fingerprint_of(config)
    (tmp_path / "oversampling.json").write_text(json.dumps({"deployed": 2, "regressed": ["a", "b"]}))
    (tmp_path / "more.gin").write_text("# the same\nPpoParameters.clip_epsilon = 0.1\n")
    assert fingerprint_of(config) == before
    (tmp_path / "oversampling.json").write_text(json.dumps(["a"]))
    (tmp_path / "more.gin").write_text("PpoParameters.clip_epsilon = 0.4\n")
    changed = {name for name, value in fingerprint_of(config).items() if before[name] != value}
    assert changed == {"gin settings", "list of modules to oversample"}


def test_training_of_an_earlier_version_resumes(config):
    now = fingerprint_of(config)
    require_same(config.root_dir, {name: now[name] for name in ("corpus", "seed")}, now)


@pytest.mark.parametrize("credit", ["function", "module"])
def test_training_with_earlier_credit_is_refused(config, credit):
    learned = {"credit_assignment": credit, "algorithm": "ppo"}
    for now in (fingerprint_of(config), fingerprint_of(replace(config, **learned))):
        new = ("credit_assignment", "algorithm", "size_of")
        before = {name: value for name, value in now.items() if name not in new} | {"credit": credit}
        with pytest.raises(EarlierCredit, match=f"started by an earlier version .* --credit {credit}") as caught:
            require_same(config.root_dir, before, now)
        assert str(config.root_dir) in caught.value.problem and "another --root-dir" in caught.value.remedy
