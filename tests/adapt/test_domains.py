"""Kinds of prompts, found as they come."""

import random

from outdraft.adapt.domains import Domains

TEMPLATE = list(range(20))


def prompts(kind, count, seed):
    """Ids of a vocabulary of 200 that belongs to the kind, behind the same template."""
    dice = random.Random(seed)
    return [[*TEMPLATE, *(1000 * (kind + 1) + dice.randrange(200) for _ in range(60))] for _ in range(count)]


def test_each_kind_has_domains_of_its_own():
    domains, dice = Domains(), random.Random(3)
    mixed = [(kind, one) for kind in range(3) for one in prompts(kind, 40, kind)]
    first, rest = [mixed[0], mixed[40], mixed[80]], mixed[1:40] + mixed[41:80] + mixed[81:]
    dice.shuffle(rest)
    named = [(kind, domains.of(one)) for kind, one in first + rest]
    late = named[30:]
    for kind in range(3):
        own = [name for k, name in late if k == kind]
        most = max(set(own), key=own.count)
        assert own.count(most) > 0.9 * len(own)
        assert {k for k, name in late if name == most} == {kind}


def test_no_more_than_so_many():
    domains = Domains(most=2)
    assert {domains.of(one) for kind in range(6) for one in prompts(kind, 5, kind)} == {"1", "2"}


def test_an_empty_or_a_usual_prompt_has_a_name():
    domains = Domains()
    assert domains.of([]) == "1"
    assert [domains.of(TEMPLATE) for _ in range(5)][-1] in {"1", "2"}
