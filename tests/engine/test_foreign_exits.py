"""`SystemExit` and its like from code of others cost the request that they belong to, and no other."""

from threading import Thread

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode.parts import Parts
from outdraft.drafters.none import NoDrafter
from outdraft.engine.loop import Engine
from outdraft.options.errors import DecodingError, RequestError
from outdraft.options.foreign import anything_but_an_interrupt
from outdraft.options.params import SamplingParams as Params
from outdraft.testing.subject import run
from outdraft.verify.auto import Auto
from tests.helpers.fakes import RandomTreeDrafter, TableTarget

pytestmark = pytest.mark.logs_faults
EXITS = (SystemExit, KeyboardInterrupt, GeneratorExit)
PROMPT = {"prompt_token_ids": [1, 2, 3]}


@pytest.fixture(scope="module", params=["none", "ngram"])
def llm(model_dir, request):
    return LLM(model_dir, drafter=request.param)


class Leaving:
    """Raises at the third token, in one of its verbs."""

    def __init__(self, error, verb, size):
        self.error, self.verb, self.size, self.told = error, verb, size, 0

    def advance(self, token):
        self.told += 1
        if self.verb == "advance" and self.told == 3:
            raise self.error

    def allowed(self, path):
        if self.verb == "allowed" and self.told >= 3:
            raise self.error
        return torch.ones(self.size, dtype=torch.bool)


@pytest.mark.parametrize("verb", ["advance", "allowed", "make"])
@pytest.mark.parametrize("error", EXITS)
def test_a_constraint_that_exits_ends_its_own_request(llm, error, verb):
    size, params = llm.engine.parts.target.vocab_size, SamplingParams(max_tokens=12, ignore_eos=True)
    wanted, answers, culprit = llm.generate(PROMPT, params).token_ids, {}, []

    def make():
        if verb == "make":
            raise error
        return Leaving(error, verb, size)

    def ask():
        try:
            culprit.append(llm.generate([PROMPT], params, constraint=make)[0].error)
        except RequestError as refused:
            culprit.append(refused)

    def innocent(i):
        answers[i] = llm.generate(PROMPT, params).token_ids

    threads = [Thread(target=ask), *(Thread(target=innocent, args=(i,)) for i in range(3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == dict.fromkeys(range(3), wanted)
    assert isinstance(culprit[0], DecodingError | RequestError) and error.__name__ in str(culprit[0])
    assert "other requests of the batch" not in str(culprit[0])
    assert llm.generate(PROMPT, params).token_ids == wanted


def test_a_users_interrupt_is_still_one(llm):
    """Python raises it in the main thread, where a constraint is made."""

    def make():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPT, constraint=make)
    caught = []
    thread = Thread(target=lambda: caught.extend(anything_but_an_interrupt()))
    thread.start()
    thread.join()
    assert caught == [BaseException] and KeyboardInterrupt not in anything_but_an_interrupt()


class FixedPolicy:
    """The same depth in every round."""

    def __init__(self, depth=3):
        self.depth = depth

    def plan(self, seqs):
        return [Budget(depth=self.depth)] * len(seqs)

    def update(self, events):
        pass

    def end(self, seqs):
        pass


@pytest.mark.parametrize("verb", ["begin", "propose", "observe", "end", "plan", "update"])
@pytest.mark.parametrize("error", [SystemExit, GeneratorExit])
def test_a_drafter_or_policy_that_exits_costs_speculation_alone(error, verb):
    target, other = TableTarget(vocab_size=7, seed=1), TableTarget(vocab_size=7, seed=2)
    drafter = RandomTreeDrafter(lambda tokens: torch.softmax(other.next_logits(tokens), -1), max_width=2)
    policy = FixedPolicy()

    def leave(*args):
        raise error

    setattr(policy if verb in ("plan", "update") else drafter, verb, leave)
    requests = [Request(prompt_token_ids=(1, i), params=Params(max_tokens=9, seed=i)) for i in range(3)]

    def write(drafter, policy):
        parts = Parts(target=target, drafter=drafter, verifier=Auto(), policy=policy)
        engine = Engine(parts, isolates=True)
        return [outcome.seq.tokens for outcome in run(engine, requests)]

    assert write(drafter, policy) == write(NoDrafter(), FixedPolicy(0))
