"""The assertions of the contract on as few runs as show them: what `make test` asks of every drafter.

The checks of the kit cross everything: each is run at all lengths, all settings, all prompts. Here a row of the table
meets every prompt, every setting, every feature of requests, every depth and every kind of end once, and which of them
meet is a Latin square of the row's `turn`: over five rows each setting meets each prompt. One run is asserted
everything that can be asserted of it: ids, counters, budgets, the cache after some commits, what is left behind.
"""

from collections import Counter
from dataclasses import replace
from functools import partial

from outdraft.core.policy import Budget
from outdraft.testing.audit import require
from outdraft.testing.contract.budgets import UnevenPolicy, adds_up
from outdraft.testing.contract.crowds import crowds_write_the_same
from outdraft.testing.contract.ends import context_end, ends_inside_a_run
from outdraft.testing.contract.forced import LEAST, Lines
from outdraft.testing.contract.ground import GREEDY, PENALISED, PENALISED_SEEDED, SEEDED, WARPED, agrees, requests
from outdraft.testing.contract.guided import ASKED, guided, two_passes
from outdraft.testing.contract.identity import WITH_BITS, bits_do_not_depend_on_the_draft
from outdraft.testing.contract.masked import MASKED, EveryOther, follows
from outdraft.testing.contract.reuse import rows_are_taken_over
from outdraft.testing.subject import Subject, collect, join, run, state_size
from outdraft.verify.auto import Auto

LENGTH = 16  # tokens of a text; those with a form are longer, which takes them no more passes
CROWDED = 20  # of those that need more memory than there is
DEPTHS = 9  # budgets of 0 to 8


def brief(params, length=LENGTH):
    return replace(params, max_tokens=length)


SETTINGS = tuple(map(brief, (GREEDY, SEEDED, WARPED, PENALISED, PENALISED_SEEDED)))
FEATURES = (
    ("masked", brief(GREEDY)),
    ("masked", brief(MASKED)),
    ("forced", GREEDY),
    ("forced", SEEDED),
    ("guided", brief(PENALISED_SEEDED)),
)
COPIED = (2, 4)  # prompts behind which all sorts of drafters guess much

GUIDED = [one for one in ASKED if one[0] != 1]


class Uneven(UnevenPolicy):
    """Every sequence meets every depth. A form drafts what it forces beyond its budget: where it does, budgets are
    smaller than that, so that it shows, and what constrained texts draft is not judged.
    """

    def __init__(self):
        super().__init__(DEPTHS)
        self.constrained = set()

    def plan(self, seqs):
        self.constrained = {seq.id for seq in seqs if seq.constraint is not None}
        return [self.fitted(seq, budget) for seq, budget in zip(seqs, super().plan(seqs), strict=True)]

    def fitted(self, seq, budget):
        if getattr(seq.request.constraint, "func", None) is Lines:
            return Budget(depth=1 + budget.depth % (LEAST - 1))
        return Budget(depth=0) if seq.request.most_drafted == 0 else budget

    def update(self, events):
        super().update([event for event in events if event.seq_id not in self.constrained])


class EveryFifth:
    """The check of the whole cache at every fifth commit of a text: what was wrong before still is."""

    def __init__(self, recheck):
        self.recheck, self.commits = recheck, Counter()

    def __call__(self, seq, cached):
        self.commits[seq.id] += 1
        if (self.commits[seq.id] + seq.id) % 5 == 0:
            self.recheck(seq, cached)


def squared(subject, turn):
    """Pairs (what is special, request): some prompts greedily, then each with a setting and with a feature."""
    asked = [("greedy", requests(SETTINGS[0])[i]) for i in COPIED]
    for i in range(5):
        params, (feature, others) = SETTINGS[(i + turn) % 5], FEATURES[(2 * i + turn) % 5]
        asked.append(("settings", requests(params)[i]))
        request = requests(others)[i]
        if feature == "guided":
            scale, negative = GUIDED[(i + turn) % len(GUIDED)]
            scaled = replace(others, guidance_scale=scale)
            request = replace(request, params=scaled, negative_prompt_token_ids=negative)
        else:
            form = EveryOther if feature == "masked" else Lines
            request = replace(request, constraint=partial(form, subject.vocab_size))
        asked.append((feature, request))
    plain = replace(requests(brief(SEEDED))[turn % 5], num_speculative_tokens=0)
    return [*asked, ("plain", plain)]


def texts(subject: Subject, turn: int) -> None:
    """All settings and features in one batch, each request at all depths in turn."""
    asked = squared(subject, turn)
    engine = subject.engine(policy=Uneven(), verifier=Auto(), recheck=True)
    engine.parts.target.recheck = EveryFifth(engine.parts.target.recheck)
    engine = guided(engine)
    outcomes = run(engine, [request for _, request in asked])
    deepest = 0
    for (what, request), outcome in zip(asked, outcomes, strict=True):
        agrees(subject, outcome, two_passes(subject, request) if what == "guided" else subject.oracle(request), what)
        if what != "guided":  # which reads two prompts
            adds_up(outcome)
        if what == "masked":
            require(
                follows(request.constraint(), outcome.seq.output), f"{subject.row.name}: a masked token was written"
            )
        if what == "forced":
            deepest = max(deepest, *(event.draft_depth for event in outcome.events))
        if what == "plain":
            offered = outcome.stats.num_draft_tokens
            require(offered == 0, f"{subject.row.name} offered {offered} tokens on a budget of 0")
    least = LEAST if engine.parts.traits.guesses else 0
    require(deepest >= least, f"{subject.row.name}: {least} tokens were forced, and {deepest} were drafted")
    leaves_nothing(subject, engine)


def leaves_nothing(subject, engine) -> None:
    """After two texts, one of them cancelled, an engine's drafter holds as much as after the same two again."""
    sizes = []
    for _ in range(2):
        outcomes = {}
        join(engine, outcomes, requests(brief(SEEDED, 8))[2:4])
        for _ in range(4):
            collect(engine, outcomes)
        engine.cancel(next(iter(outcomes.values())).seq)
        while engine.has_work:
            collect(engine, outcomes)
        sizes.append(held(engine))
    require(
        subject.row.remembers or sizes[0] == sizes[1],
        f"{subject.row.name} keeps state of requests that are over: {sizes} entries",
    )


def held(engine):
    """Entries of the drafter's containers."""
    target = engine.parts.target.target  # under the guidance
    return state_size(engine.parts.drafter, outside=[engine.parts.target, target, target.target])


def ends(subject: Subject, turn: int) -> None:
    """Each end at one place, and at the end of the context."""
    ends_inside_a_run(subject, turns=(turn % 5,))
    context_end(subject)


def bits(subject: Subject, turn: int) -> None:
    """Half of the requests whose bits are compared, greedy and seeded ones."""
    asked = [replace(one, params=brief(one.params, 10)) for one in WITH_BITS[turn % 2 :: 2]]
    bits_do_not_depend_on_the_draft(subject, asked=asked)


def crowds(subject: Subject, turn: int) -> None:
    """One of both crowds."""
    crowds_write_the_same(subject, kinds=(turn % 2 == 0,), length=CROWDED)


def reuse(subject: Subject, turn: int) -> None:
    """Greedily or seeded."""
    rows_are_taken_over(subject, settings=((GREEDY, SEEDED)[turn // 2 % 2],))


CHECKS = (texts, ends, bits, crowds, reuse)
