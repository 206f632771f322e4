"""Log probabilities of the prompt's own tokens, from the rows of the passes that read it.

    tokens     t0  t1  t2  t3 | P        the row of t0 predicts t1, ...: the row of the pending token P, which is the
    predicted  t1  t2  t3  P  | ...      prompt's last, predicts the first token of the answer and belongs to the draft

No layer knows of them: a pass has the same rows and the same draft nodes as without, so that the text has the same
bits. Only the head is asked for more rows, a few at a time, because a row of logits is as wide as the vocabulary.
"""

from outdraft.core.logprobs import TokenLogprobs
from outdraft.core.packing import PackedDrafts
from outdraft.core.target import TargetOutput
from outdraft.sampling.logprobs import prompt_token_logprobs

ROWS = 64  # of logits at once


def score_prompts(packed: PackedDrafts, scored: TargetOutput) -> list[tuple[TokenLogprobs, ...]]:
    """One tuple for each sequence of the pass, empty where none were asked for or nothing is left to report."""
    found: list[tuple[TokenLogprobs, ...]] = []
    for i, (seq, rows) in enumerate(zip(packed.seqs, packed.prompt_rows, strict=True)):
        told: list[TokenLogprobs] = []
        num_top = seq.request.params.prompt_logprobs
        for start in range(rows.start, rows.stop, ROWS):
            some = rows[start - rows.start :][:ROWS]
            assert scored.logits_at is not None and num_top is not None
            first = seq.num_cached + some.start - packed.row_starts[i] + 1
            predicted = seq.tokens[first : first + len(some)]
            told += prompt_token_logprobs(predicted, scored.logits_at(some), num_top, seq.request.logprobs_mode)
        found.append(tuple(told))
    return found
