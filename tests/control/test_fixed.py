"""The fixed policy: the option, the request's own wish, and never more than can still be emitted."""

import pytest

from outdraft.control.fixed import METHOD, FixedOptions
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams


def depth(*, max_tokens=100, max_len=1000, asks=None, **options):
    request = Request(
        prompt_token_ids=(1, 2), params=SamplingParams(max_tokens=max_tokens), num_speculative_tokens=asks
    )
    seq = Sequence(
        id=0,
        request=request,
        tokens=[1, 2],
        prompt_len=2,
        max_len=max_len,
        seed=0,
        coupled=False,
        eos_token_ids=frozenset(),
        coins=None,
        draft_coins=None,
    )
    return METHOD.build(FixedOptions(**options), ()).plan([seq])[0].depth


def test_depth():
    assert depth() == 5
    assert depth(num_speculative_tokens=3) == 3
    assert depth(num_speculative_tokens=3, asks=8) == 8
    assert depth(asks=0) == 0
    assert depth(max_tokens=3) == 2
    assert depth(max_tokens=1) == 0
    assert depth(max_len=4) == 1


def test_bad_options():
    with pytest.raises(ConfigError, match="num_speculative_tokens=-1"):
        FixedOptions(num_speculative_tokens=-1)
    with pytest.raises(ConfigError, match="max_nodes=-2"):
        FixedOptions(max_nodes=-2)
