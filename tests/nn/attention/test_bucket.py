"""Buckets hold what they are asked to hold, and a chain's rows stand where its text will."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from outdraft.nn.attention.chain import ChainBuffers, ChainRows
from outdraft.nn.attention.rows import NewRows, RowBuffers, block_rows, chain_bits, find_bucket, mask_bits, tree_bits

CPU = torch.device("cpu")


@given(rows=st.integers(1, 300), seqs=st.integers(1, 70), pages=st.integers(1, 500), groups=st.integers(1, 40))
def test_a_bucket_is_large_enough_and_not_twice_too_large(rows, seqs, pages, groups):
    bucket = find_bucket(rows=rows, seqs=seqs, pages=pages, groups=groups, max_pages=500)
    assert rows <= bucket.rows < 2 * rows and seqs <= bucket.seqs < 2 * seqs and pages <= bucket.pages <= 500
    assert bucket.block == block_rows(groups) >= 1


@given(counts=st.lists(st.integers(1, 70), min_size=1, max_size=5))
def test_blocks_cover_every_row_once(counts):
    bucket = find_bucket(rows=sum(counts), seqs=len(counts), pages=9, groups=4, max_pages=64)
    buffers = RowBuffers(bucket, 0, CPU)
    parts = [NewRows(ids=[1] * n, positions=range(n), base=0, sees=chain_bits(n), pages=range(1, 10)) for n in counts]
    buffers.fill(parts)
    found = [
        (seq, first + i)
        for seq, first in zip(buffers.rows.block_seqs.tolist(), buffers.rows.block_rows.tolist(), strict=True)
        if seq >= 0
        for i in range(min(bucket.block, counts[seq] - first))
    ]
    assert sorted(found) == [(seq, row) for seq, n in enumerate(counts) for row in range(n)]


def test_a_second_filling_leaves_nothing_of_the_first():
    bucket = find_bucket(rows=8, seqs=2, pages=16, groups=1, max_pages=16)
    fresh, used = RowBuffers(bucket, 3, CPU), RowBuffers(bucket, 3, CPU)
    long = NewRows(ids=[9] * 8, positions=range(40, 48), base=40, sees=chain_bits(8), pages=range(4, 9))
    short = NewRows(ids=[5], positions=[2], base=2, sees=[1], pages=[7])
    used.fill([long])
    used.fill([short])
    fresh.fill([short])
    assert torch.equal(used.memory.tensor, fresh.memory.tensor)
    assert used.rows.slots.tolist() == [7 * 16 + 2] + [3 * 16] * 7, "padding rows write to the dustbin"


def test_what_rows_see():
    assert chain_bits(3) == [0b1, 0b11, 0b111]
    assert tree_bits([-1, 0, 0, 2]) == [0b1, 0b11, 0b101, 0b1101]
    assert mask_bits(torch.tensor([[True, False], [True, True]])) == [0b1, 0b11]


def test_a_row_beyond_the_first_word_is_seen():
    bucket = find_bucket(rows=70, seqs=1, pages=5, groups=1, max_pages=16)
    buffers = RowBuffers(bucket, 0, CPU)
    buffers.fill([NewRows(ids=[1] * 70, positions=range(70), base=0, sees=chain_bits(70), pages=range(1, 6))])
    assert buffers.rows.sees[69].tolist() == [-1, (1 << 6) - 1]


def test_chain_steps_stand_one_slot_further_on_and_end_in_the_dustbin():
    bucket = find_bucket(rows=3, seqs=2, pages=3, groups=1, max_pages=16)
    buffers = ChainBuffers(bucket, 4, 0, CPU)
    deep = ChainRows(new=NewRows(ids=[1, 2], positions=[14, 15], base=14, sees=[1, 3], pages=[5, 6]), depth=4)
    shallow = ChainRows(new=NewRows(ids=[3], positions=[1], base=1, sees=[1], pages=[7]), depth=2)
    buffers.fill([deep, shallow])
    assert [step.slots.tolist() for step in buffers.steps] == [[96, 7 * 16 + 2], [97, 0], [98, 0]]
    assert [step.positions.tolist() for step in buffers.steps] == [[16, 2], [17, 0], [18, 0]]
    assert buffers.first.last.tolist() == [1, 2]
