"""Count in the engine how often a draft's tokens are accepted at each confidence, for a policy to begin with.

    the target's texts behind some prompts, drafted in chains -> (confidence, accepted) of each judged token -> bins

The expected calibration error is |confidence - share accepted|, in bins of equal width, weighted by their tokens (Guo
et al., "On calibration of modern neural networks", 2017, https://arxiv.org/abs/1706.04599). Before: of what the draft
says. After: of the map, each half of the texts judged by what was counted in the other. Data in: a trained draft, its
target, prompts; data out: the file beside the draft.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from outdraft.control.shared.reliability import FILE, CalibrationFile, Reliability
from outdraft.core.calibration import Calibration
from outdraft.core.registry import find, find_learner, option_names
from outdraft.engine.callers.result import all_whole
from outdraft.engine.llm import LLM
from outdraft.models.files.load import load_model
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.options.paths import user_path
from outdraft.training.answers import Asking, prompts_of
from outdraft.training.examples import find_files
from outdraft.training.record import fingerprint, read_record, require_target
from outdraft.weights.digest import digest_weights
from outdraft.weights.hub import resolve

Pair = tuple[float, bool]  # what the drafter said of a token, and whether it was accepted
_ASKED = "confidence_threshold"  # the option by which a drafter is asked to say how sure it is
_ENDLESS = 1e12  # judged tokens: nothing is forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMap:
    """What was written, and how far off the draft's word was, and the map is."""

    path: Path
    judged: int
    before: float
    after: float


def calibration_error(pairs: Seq[Pair], calibration: Calibration | None = None, *, bins: int = 15) -> float:
    """Of confidences as they are given, or as a map corrects them; 0 for no pairs."""
    sums = [[0.0, 0.0] for _ in range(bins)]
    for told, accepted in pairs:
        said = told if calibration is None else calibration(told)
        one = sums[min(int(said * bins), bins - 1)]
        one[0] += said
        one[1] += accepted
    return sum(abs(said - kept) for said, kept in sums) / max(1, len(pairs))


def counted(pairs: Seq[Pair]) -> Reliability:
    """Counts of all judged tokens; none is forgotten, however old."""
    made = Reliability(_ENDLESS)
    for said, accepted in pairs:
        made.add(said, accepted)
    return made


def measure_calibration(
    directory: Path,
    target: str,
    data: Seq[str],
    asking: Asking,
    *,
    texts: int = 256,
    depth: int = 8,
    dtype: str | None = None,
    device: str | None = None,
) -> MeasuredMap:
    """Write DIRECTORY/calibration.json from texts behind the first prompts of `data`.

    Raises `ConfigError` where there is no draft, no prompt, or nothing that it says of its tokens, and for another
    target's draft.
    """
    if not data:
        raise ConfigError("there is no text to draft after: name files with --data FILE")
    place = user_path(directory)
    record = read_record(place)
    method = find_learner(record.kind)
    drafter = method.drafter or record.kind
    if _ASKED not in option_names(find("drafter", drafter)):
        raise ConfigError(
            f"drafter {drafter!r} gives no probabilities with its tokens, so there is nothing to calibrate"
        )
    source = resolve(target)
    require_target(record, directory, target, fingerprint(load_model(source, record.dtype)))
    llm = LLM(
        source,
        drafter={"name": drafter, "model": str(place), **method.drafts, _ASKED: 1e-9},
        verifier="rejection",
        policy="fixed",
        num_speculative_tokens=depth,
        dtype=dtype or record.dtype,
        device=device or "cpu",
    )
    found = [one for one in prompts_of(find_files(data), llm.tokenizer, asking.prompt_tokens) if one]
    prompts = list(islice(found, texts))
    settings = [
        SamplingParams(
            max_tokens=asking.max_tokens,
            temperature=asking.temperatures[i % len(asking.temperatures)],
            seed=asking.seed + i,
        )
        for i in range(len(prompts))
    ]
    written = all_whole(llm.generate([{"prompt_token_ids": one} for one in prompts], settings)) if prompts else []
    halves: tuple[list[Pair], list[Pair]] = ([], [])
    for i, one in enumerate(written):
        halves[i // len(asking.temperatures) % 2].extend(one.stats.judged)
    pairs = [*halves[0], *halves[1]]
    if not pairs:
        raise ConfigError(
            f"{', '.join(data)}: no token was drafted and judged behind {len(prompts)} prompts; give more"
        )
    path = place / FILE
    whole = CalibrationFile(draft=digest_weights(place), temperatures=asking.temperatures, shares=counted(pairs).shares)
    whole.write(path)
    after = sum(
        calibration_error(judged, counted(other).fit()) * len(judged) for judged, other in (halves, halves[::-1])
    ) / len(pairs)
    return MeasuredMap(path=path, judged=len(pairs), before=calibration_error(pairs), after=after)
