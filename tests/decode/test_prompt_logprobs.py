"""Log probabilities of prompts: which rows tell them, in chunks of any size, once, from few rows of logits at once."""

from dataclasses import replace

import pytest
import torch

from outdraft.core.draft import chain
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode import prompt_logprobs
from outdraft.decode.parts import Parts
from outdraft.decode.step import step
from outdraft.engine.loop import Engine
from outdraft.options.params import SamplingParams
from tests.helpers.fakes import ConstantPolicy, ReferenceRule, TableTarget, oracle

PROMPT = (3, 1, 2, 4, 1, 7, 2)


def begun(table, prompt=PROMPT, **params):
    parts = Parts(
        target=table,
        drafter=oracle(table.next_logits),
        verifier=ReferenceRule(),
        policy=ConstantPolicy(Budget(depth=3)),
    )
    engine = Engine(parts)
    seq = engine.prepare(
        Request(prompt_token_ids=prompt, params=SamplingParams(max_tokens=9, **params), num_speculative_tokens=3)
    )
    table.begin(seq)
    parts.drafter.begin([seq])
    return parts, seq


def wanted(table, prompt=PROMPT):
    return [torch.log_softmax(table.next_logits(prompt[:i]), -1) for i in range(1, len(prompt))]


@pytest.mark.parametrize("chunk", [1, 2, 4, 99])
@pytest.mark.parametrize("rows", [1, 2, 64])
def test_every_chunk_tells_the_tokens_that_its_rows_predict(chunk, rows, monkeypatch):
    monkeypatch.setattr(prompt_logprobs, "ROWS", rows)
    table = TableTarget()
    honest, sizes = table._logits_at, []
    table._logits_at = lambda packed, some: sizes.append(len(some)) or honest(packed, some)
    parts, seq = begun(table, prompt_logprobs=2)
    seq.turn = replace(seq.turn, max_chunk=chunk)
    told = []
    while seq.num_output < 3:
        told += step([seq], parts)[0].prompt_logprobs
    assert [one.token for one in told] == list(PROMPT[1:])
    for one, row in zip(told, wanted(table), strict=True):
        assert one.raw == one.warped == pytest.approx(float(row[one.token]), abs=1e-12)
        best = row.topk(2)
        assert [i for i, _ in one.top_raw] == best.indices.tolist() and one.top_raw == one.top_warped
        assert [v for _, v in one.top_raw] == pytest.approx(best.values.tolist(), abs=1e-12)
    assert sum(sizes) == len(PROMPT) - 1 and max(sizes) <= rows


def test_a_request_that_did_not_ask_gets_none():
    table = TableTarget()
    asking, quiet = (begun(table, prompt_logprobs=n)[1] for n in (0, None))
    packed = pack([quiet, asking], [chain([2]), chain([2])])
    assert [list(rows) for rows in packed.prompt_rows] == [[], [7, 8, 9, 10, 11, 12]]
    assert packed.nodes.tolist() == [6, 13], "the draft nodes are what they are without"


def test_a_prompt_that_is_read_again_is_not_reported_again():
    """A sequence may be ended and begin anew, with what it has written."""
    table = TableTarget()
    parts, seq = begun(table, prompt_logprobs=0)
    seq.turn = replace(seq.turn, max_chunk=2)
    first = [*step([seq], parts)[0].prompt_logprobs, *step([seq], parts)[0].prompt_logprobs]
    table.end(seq)
    table.begin(seq)
    seq.num_cached = 0
    rest = []
    parts.drafter.end([seq])
    parts.drafter.begin([seq])
    while seq.num_output < 2:
        rest += step([seq], parts)[0].prompt_logprobs
    assert [one.token for one in first + rest] == list(PROMPT[1:]) and len(first) == 4
    assert not seq.scores_prompt
    table.end(seq)
    table.begin(seq)
    seq.num_cached = 0
    assert not any(pack([seq], [chain([seq.pending])], max_chunk=99).prompt_rows)


def test_no_row_behind_the_prompt_is_reported():
    """Output that is read again stands in certain rows too."""
    table = TableTarget()
    _, seq = begun(table, prompt_logprobs=0)
    seq.tokens += [5, 6]
    assert list(pack([seq], [chain([6])]).prompt_rows[0]) == list(range(6))


def test_several_texts_tell_their_prompt_once():
    texts = SamplingParams(n=3, temperature=1.0, prompt_logprobs=1).singles()
    assert [one.prompt_logprobs for one in texts] == [1, None, None]
