"""States that a head hears and does not read yet lie in whole passes of a batch: each text finds its own."""

from itertools import count

from outdraft import LLM, SamplingParams
from outdraft.core.draft import chain
from outdraft.drafters.shared.networks import paired_text

PROMPTS = [{"prompt_token_ids": [5 + (7 * i + j) % 90 for j in range(20 + 9 * i)]} for i in range(4)]
SETTINGS = SamplingParams(max_tokens=40, ignore_eos=True)


def test_the_states_of_passes_that_are_kept_whole_are_each_texts_own(monkeypatch):
    """A head that guesses in every ninth round alone: what it heard meanwhile lies in passes of four texts."""
    told = []
    for most, keep in ((paired_text.MAX_PASSES, paired_text.kept), (3, paired_text.kept), (64, dict)):
        monkeypatch.setattr(paired_text, "MAX_PASSES", most)
        monkeypatch.setattr(paired_text, "kept", keep)
        llm = LLM("zoo:target", policy="fixed", num_speculative_tokens=4, drafter="eagle")
        drafter, rounds = llm.engine.parts.drafter, count()
        propose, guesses = drafter.propose, []

        def seldom(seqs, budgets, propose=propose, rounds=rounds, guesses=guesses):
            if next(rounds) % 9:
                return [chain([seq.pending]) for seq in seqs]
            made = propose(seqs, budgets)
            guesses.append([draft.tokens.tolist() for draft in made])
            return made

        drafter.propose = seldom
        texts = [one.token_ids for one in llm.generate(PROMPTS, SETTINGS)]
        told.append((texts, guesses))
    assert told[0] == told[1] == told[2]
    assert sum(len(guess) > 1 for made in told[0][1] for guess in made) > 10
