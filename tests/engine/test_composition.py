"""What stands around an engine's parts is there while a request asks for it, and not otherwise."""

from outdraft import LLM, SamplingParams
from outdraft.core.drafter import Traits
from outdraft.core.request import Request
from outdraft.decode.asked import RulesByRequest
from outdraft.decode.guidance import GuidedTarget
from outdraft.decode.parts import Parts
from outdraft.decode.step import rule_for
from outdraft.engine.loop import Engine
from outdraft.options.speculative import Speculative
from tests.helpers.fakes import ReferenceRule, TableTarget


class Untouchable:
    """A drafter, and a policy, of which nothing may be asked."""

    traits = Traits(guesses=False)

    def __getattr__(self, name):
        raise AssertionError(f"{name} was asked")


def test_plain_decoding_asks_neither_drafter_nor_policy():
    silent = Untouchable()
    for isolates in (False, True):
        parts = Parts(target=TableTarget(), drafter=silent, verifier=ReferenceRule(), policy=silent)
        engine = Engine(parts, isolates=isolates)
        seq = engine.add(Request(prompt_token_ids=(1, 2), params=SamplingParams(max_tokens=5)))
        while engine.has_work:
            engine.step()
        assert seq.num_output == 5 and seq.finish_reason == "length"


def test_guidance_stands_there_while_a_guided_request_is_unfinished():
    llm = LLM("zoo:target", drafter="none")
    engine, composition = llm.engine, llm.engine.composition
    bare = composition.used.target
    assert not isinstance(bare, GuidedTarget)
    guided = Request(prompt_token_ids=(5, 6), params=SamplingParams(max_tokens=3, guidance_scale=2.0))
    free = Request(prompt_token_ids=(5, 6), params=SamplingParams(max_tokens=9, ignore_eos=True))
    other, seq = engine.add(free), engine.add(guided)
    assert isinstance(composition.used.target, GuidedTarget)
    while seq.finish_reason is None:
        engine.step()
    assert composition.used.target is bare and other.finish_reason is None
    while engine.has_work:
        engine.step()
    engine.cancel(engine.add(guided))
    assert composition.used.target is bare


def test_named_rules_judge_only_the_passes_that_name_one():
    llm = LLM("zoo:target", drafter="ngram")
    parts = llm.engine.composition.used
    plain = llm.engine.prepare(Request(prompt_token_ids=(5,)))
    named = llm.engine.prepare(Request(prompt_token_ids=(5,), speculative=Speculative(verifier="rejection")))
    assert rule_for([plain], parts) is parts.verifier is not parts.named_rules
    assert isinstance(rule_for([plain, named], parts), RulesByRequest)
