"""Offline tuning: an interrupted search goes on, and the planted best set is found."""

import pytest
import torch
from drafters.drafting import make, sequence, write

from outdraft.core.skip import Skip
from outdraft.drafters.draft_verify import tune
from outdraft.drafters.shared.own_layers.skip_sets import alternating
from outdraft.engine.runner import Runner
from outdraft.models.remake.inflate import inflate_decoder
from outdraft.testing.tiny import tiny_model

pytest.importorskip("optuna", reason="the extra outdraft[tune] is not installed")
pytest.importorskip("scipy")


def planted(skip):
    """Layers 1 and 3 should be left out whole, anything else costs."""
    right = len(skip.attention & {1, 3}) + len(skip.mlp & {1, 3})
    return right - 2.0 * (len(skip) - right)


def test_an_interrupted_search_goes_on(tmp_path):
    journal, asked = tmp_path / "skip.trials", []

    def measure(skip):
        asked.append(skip)
        if len(asked) == 6:
            raise KeyboardInterrupt
        return planted(skip)

    with pytest.raises(KeyboardInterrupt):
        tune(measure, 4, trials=9, journal=journal)
    heard = []
    best = tune(measure, 4, trials=9, journal=journal, tell=heard.append)
    assert len(asked) == 10 and best.num_trials == 9 and [one.num_trials for one in heard] == [6, 7, 8, 9]
    assert best.score == max(planted(skip) for skip in asked) == planted(best.skip)
    assert tune(measure, 4, trials=9, journal=journal) == best and len(asked) == 10
    tune(measure, 4, trials=1, journal=journal, name="another")
    assert len(asked) == 11


def test_the_plain_sets_come_first_then_halves_of_layers_are_chosen_apart(tmp_path):
    asked = []
    best = tune(lambda skip: asked.append(skip) or planted(skip), 12, trials=8, journal=tmp_path / "skip.trials")
    assert asked[:3] == [alternating(12, ratio) for ratio in (0.0, 0.25, 0.45)] and len(set(asked[:3])) == 3
    tried = asked[3:]
    assert any(skip.attention - skip.mlp for skip in tried) and any(skip.mlp - skip.attention for skip in tried)
    assert all(0 < len(skip) < 24 for skip in tried)
    assert best.skip in asked and best.num_trials == 8


@pytest.mark.slow
def test_the_planted_set_is_found_on_a_model_whose_odd_layers_do_nothing(tmp_path):
    deep = inflate_decoder(tiny_model(layers=3, vocab=31), depth=6)
    deep.set_exact(True)
    runner = Runner(deep)
    drafter = make("draft_verify", runner)

    def speed_up(skip):
        """Tokens per pass over what drafting and verifying would cost if sublayers were all there is."""
        drafter.skip = skip
        with torch.inference_mode():
            events = write([sequence(p, max_tokens=24) for p in ([1, 2, 3], [4])], runner, drafter, k=4).events
        passes = sum(bool(event.tokens) for event in events)
        drafted = sum(event.num_draft_tokens for event in events)
        return sum(len(event.tokens) for event in events) / (passes + drafted * (1 - len(skip) / 12))

    best = tune(speed_up, 6, trials=80, journal=tmp_path / "skip.trials")
    identity = frozenset({1, 3, 5})
    assert best.score >= speed_up(Skip(identity, identity))
    assert best.score > 1.2 * speed_up(Skip())
