"""Which modules take part in every round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.core.formats.policy import write_regressed
from components.platform.errors import UserError
from components.ppo.config import TrainingConfig
from components.ppo.module_sampler import oversampled, read_oversampling


def test_oversamples_named_modules_and_directories_of_held_out_ones() -> None:
    trained = {"zstd/lib/a.o", "zstd/lib/b.o", "zstd/programs/c.o", "lz4/d.o"}
    assert oversampled(("lz4/d.o",), trained) == {"lz4/d.o"}
    assert oversampled(("zstd/lib/held-out.o",), trained) == {"zstd/lib/a.o", "zstd/lib/b.o"}
    assert oversampled(("nowhere/x.o",), trained) == set() == oversampled((), trained)


def test_reads_list_or_state_of_retraining(tmp_path: Path) -> None:
    path = tmp_path / "names.json"
    for document in (["a", "b"], {"regressed": ["a", "b"], "deployed": None}):
        path.write_text(json.dumps(document))
        assert read_oversampling(path) == ("a", "b")


@pytest.mark.parametrize("text", ["", "3", "[1]", '{"names": []}'])
def test_other_documents_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "names.json").write_text(text)
    with pytest.raises(UserError, match=r"names\.json is not (a list of modules|valid JSON)"):
        read_oversampling(tmp_path / "names.json")


def test_warmstart_names_modules_unless_the_option_does(tmp_path: Path) -> None:
    def oversampling(given: Path | None = None) -> Path | None:
        places = (tmp_path,) * 6
        return TrainingConfig(*places, minutes=1, oversample_modules=given).oversampling

    write_regressed(tmp_path, ())
    assert oversampling() is None and list(tmp_path.iterdir()) == []
    write_regressed(tmp_path, ("a", "b"))
    found = oversampling()
    assert found is not None and read_oversampling(found) == ("a", "b")
    assert oversampling(tmp_path / "names.json") == tmp_path / "names.json"
