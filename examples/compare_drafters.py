"""Every drafter on one prompt, over one loaded target: passes saved, and where guesses were refused."""

from outdraft import LLM, SamplingParams
from outdraft.core.registry import names
from outdraft.options.errors import OutdraftError

params = SamplingParams(max_tokens=48)
plain = LLM("zoo:target", drafter="none")
expected = plain.generate("The captain said", params).token_ids

for drafter in names("drafter"):
    try:
        result = plain.with_drafter(drafter, num_speculative_tokens=4).generate("The captain said", params)
    except OutdraftError as error:  # a file of its own is missing, and it says which
        print(f"{drafter:15} {error}")
        continue
    stats = result.stats
    shares = " ".join(f"{share:.2f}" for share in stats.acceptance_by_position)
    same = "identical" if result.token_ids == expected else "DIFFERENT"
    print(f"{drafter:15} {stats.tau:.2f} tokens a pass, {same}, accepted by position: {shares}")
