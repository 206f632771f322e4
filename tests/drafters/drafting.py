"""What the drafters' tests share: sequences, a greedy rule in ten lines, and a target that recites a given text."""

import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import torch

from outdraft.core.draft import chain
from outdraft.core.drafter import Seen
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.core.verdict import Verdict
from outdraft.decode.parts import Parts
from outdraft.decode.step import step
from outdraft.drafters.shared.trees.tree import GREEDY
from outdraft.engine.runner import Runner
from outdraft.models.networks.port import TargetPort
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.draft_coins import draft_coins
from tests.helpers.table_target import TableTarget

_ids = itertools.count()


def best_children(logits, width, temperature=GREEDY):
    """The best tokens of a node, with the log probabilities that a deterministic tree scores them by."""
    best = torch.log_softmax(logits, -1).topk(width)
    scores = best.values if temperature == 1 else torch.log_softmax(best.values / temperature, -1)
    return list(zip(best.indices.tolist(), scores.tolist(), strict=True))


def sequence(prompt, *, max_len=4096, seed=0, coupled=False, eos=(), k=None, references=(), **params):
    """A sequence as the engine makes it."""
    params.setdefault("max_tokens", 64)
    request = Request(
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(seed=seed, **params),
        num_speculative_tokens=k,
        references=tuple(tuple(reference) for reference in references),
    )
    return Sequence(
        id=next(_ids),
        request=request,
        tokens=list(prompt),
        prompt_len=len(prompt),
        max_len=max_len,
        seed=seed,
        coupled=coupled,
        eos_token_ids=frozenset(eos),
        coins=verifier_coins,
        draft_coins=draft_coins,
        prompt_ids=frozenset(prompt),
    )


def greedy_rule(packed, p, coins):
    """Walk while a child is the argmax."""
    verdicts = []
    for i, tree in enumerate(packed.trees):
        if tree is None:
            continue
        best = p[packed.node_slice(i)].argmax(-1).tolist()
        node, path = 0, []
        while child := next((c for c in tree.children[node] if tree.tokens[c] == best[node]), None):
            path.append(child)
            node = child
        verdicts.append(Verdict(tuple(path), best[node], not tree.children[node]))
    return verdicts


greedy_rule.lossless = True


class Reciter(TableTarget):
    """The next token is what stands at this place of `text`, whatever came before."""

    def __init__(self, text, vocab_size, max_len=4096):
        super().__init__(vocab_size=vocab_size, order=0, max_len=max_len)
        self.text = text

    def next_logits(self, tokens):
        logits = torch.zeros(self.vocab_size)
        logits[self.text[len(tokens)] if len(tokens) < len(self.text) else 0] = 9.0
        return logits


@dataclass
class Run:
    """Events of every step, per sequence."""

    passes: int
    events: list

    @property
    def tokens_per_pass(self):
        return sum(len(e.tokens) for e in self.events) / sum(bool(e.tokens) for e in self.events)


def write(seqs, target, drafter, *, k=5, rule=greedy_rule, policy=None, each_step=None):
    """Run the one loop to the end of every sequence."""
    policy = policy or find("policy", "fixed").build(
        make_options(find("policy", "fixed"), {"num_speculative_tokens": k}), ()
    )
    parts = Parts(target=target, drafter=drafter, verifier=rule, policy=policy)
    for seq in seqs:
        seq.num_cached = target.begin(seq)
    drafter.begin(seqs)
    live, events, passes = list(seqs), [], 0
    while live:
        events += step(live, parts)
        passes += 1
        if each_step is not None:
            each_step(live)
        done = [seq for seq in live if seq.finish_reason is not None]
        drafter.end(done)
        for seq in done:
            target.end(seq)
        live = [seq for seq in live if seq.finish_reason is None]
    return Run(passes, events)


def make(name, port=None, **options):
    """A drafter by name."""
    method = find("drafter", name)
    return method.build(make_options(method, options), door(port))


def door(target):
    """The door to a runner; a stub that holds what a test needs stands for every part of one."""
    if isinstance(target, TargetPort) or target is None:
        return target
    if hasattr(target, "port"):
        return target.port
    return SimpleNamespace(facts=target, layers=target, rows=target, costs=target, origin=target, cache=None)


def run_pending(seqs, runner, **part):
    """Hidden states [B, D] after each sequence's pending token, which stays uncached."""
    ids, places = [seq.pending for seq in seqs], [len(seq.tokens) - 1 for seq in seqs]
    context = runner.port.rows.tentative(seqs, 0, [1] * len(seqs))
    return runner.port.layers.run(torch.tensor(ids), torch.tensor(places), context, **part)


def draft_behind(target, prompt, name, head_dir, *, depth=4, temperature=0.0, **options):
    """What heads on the states of a decoder propose behind a prompt; a chain by default."""
    runner = Runner(target)
    drafter = make(name, runner, model=str(head_dir), **{"width": 1, **options})
    seq = sequence(prompt, temperature=temperature)
    n = len(prompt) - 1
    with torch.inference_mode():
        runner.begin(seq)
        drafter.begin([seq])
        hidden = runner.forward(pack([seq], [chain([seq.pending])]), drafter.needs.taps).hidden
        runner.commit(seq, range(n))
        seq.num_cached = n
        drafter.observe([Seen(seq=seq, start=0, num_committed=n, hidden={t: h[:n] for t, h in hidden.items()})])
        return drafter.propose([seq], [Budget(depth=depth)])[0]


def states(drafter):
    """Every dictionary that the drafter keeps: all must be empty after `end`."""
    return {name: value for name, value in vars(drafter).items() if isinstance(value, dict)}
