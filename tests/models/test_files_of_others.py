"""The tables of docs/files_of_others.md about configs, weights, quantization, adapters and heads, row by row.

*read*: what is made of the file differs from what is made without the key, and the logits of models whose keys are
read are those of transformers (test_parity.py, test_families.py). *refused*: an error names the key. *noted*: one line
of the log names it, and nothing else changes.
"""

from fnmatch import fnmatchcase

import pytest
from models.cases_of_configs import COMPUTED, READ, REFUSED, SIZES
from models.cases_of_files import FILES
from models.cases_of_heads import HEADS
from page_rows import FILES_OF_OTHERS, rows_of

from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.families.shared.fields import _BOOKKEEPING, _REFUSED, NEUTRAL, Fields
from outdraft.models.files.load import find_architecture
from outdraft.options.errors import ModelLoadError, OutdraftError

CONFIG = rows_of(FILES_OF_OTHERS, "config.json")
HEADINGS = ("Shard index and weights", "Quantization records", "Adapters", "Draft heads")
OTHERS = [row for heading in HEADINGS for row in rows_of(FILES_OF_OTHERS, heading)]
KEYS = {key for row in CONFIG for key in row[1].split(", ")}


SAID_ELSEWHERE = {"n_ctx", "order_of_interleaved_layers", "is_decoder"}  # n_positions, layer_types; all are


def is_bookkeeping(key):
    return any(fnmatchcase(key, pattern) for pattern in _BOOKKEEPING)


def config_of(family, **more):
    raw = {"model_type": family, **SIZES.get(family, SIZES["llama"]), **more}
    return find_architecture(raw).read(raw, strict=True)


def test_every_case_of_a_config_has_a_row_and_every_row_a_case():
    assert {row[1] for row in CONFIG if row[2] == "read"} == set(READ)
    assert {row[1] for row in CONFIG if row[2] == "refused"} == set(REFUSED) | set(COMPUTED)


@pytest.mark.parametrize("key", READ)
def test_a_key_that_is_read_says_something(key):
    family, beside, value = READ[key]
    assert config_of(family, **{**beside, key: value}) != config_of(family, **beside)


@pytest.mark.parametrize("key", REFUSED)
def test_a_key_that_is_refused_is_named(key):
    family, said = REFUSED[key]
    with pytest.raises(ModelLoadError) as caught:
        config_of(family, **said)
    assert all(word in str(caught.value) for word in said)


@pytest.mark.parametrize("key", COMPUTED)
def test_a_key_that_says_what_is_computed_anyway_may_say_nothing_else(key):
    family, same, other = COMPUTED[key]
    assert config_of(family, **{key: same}) == config_of(family)
    with pytest.raises(ModelLoadError, match=f"{key}=.* is not supported"):
        config_of(family, **{key: other})


def test_every_key_that_a_reader_asks_for_has_a_row(monkeypatch):
    asked, look = set(), Fields.look

    def noted(self, key):
        if "hidden_size" in self.raw or "n_embd" in self.raw:  # no table inside
            asked.add(key)
        return look(self, key)

    monkeypatch.setattr(Fields, "look", noted)
    for family in ARCHITECTURES:
        config_of(family)
    for key, (family, beside, value) in READ.items():
        config_of(family, **{**beside, key: value})
    assert {key for key in asked - KEYS if not is_bookkeeping(key)} <= SAID_ELSEWHERE


def test_every_key_of_transformers_configs_has_a_row_or_changes_nothing():
    transformers = pytest.importorskip("transformers")
    theirs = {key for family in ARCHITECTURES for key in transformers.AutoConfig.for_model(family).to_dict()}
    known = {*theirs, *NEUTRAL, *_REFUSED}
    assert {key for key in known - KEYS if not is_bookkeeping(key)} <= SAID_ELSEWHERE


def test_every_file_of_others_has_its_rows():
    assert {row[:2] for row in OTHERS} == set(FILES | HEADS)


@pytest.mark.parametrize(("file", "key", "done"), [row[:3] for row in OTHERS])
def test_a_row_is_true(file, key, done, tmp_path, caplog):
    case = (FILES | HEADS)[file, key]
    plain, said = tmp_path / "plain", tmp_path / "said"
    case.write(plain), case.write(said)
    without = case.load(plain)
    before = list(caplog.messages)
    case.change(said)
    if done == "refused":
        with pytest.raises(OutdraftError) as caught:
            case.load(said)
        assert all(word in str(caught.value) for word in case.words), caught.value
        return
    outcome, lines = case.load(said), caplog.messages[len(before) :]
    told = [line for line in lines if all(word in line for word in case.words)]
    assert (outcome != without) == (done == "read")
    assert done == "read" or len(told) == 1, lines
