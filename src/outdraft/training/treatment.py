"""Which cure the next run of learning takes: what is wrong with the draft is asked where a run begins, never within.

    the specimen, read once --+
    prompts, as they come   --+-> diagnose -> a cure -> LiveDraft.treat; the ledger says it where it is another one
    rounds of observed.json --+

A run begins with the learner, with another version, and where a candidate was taken: it is judged by itself, and what
is learned from then on is the next one's. While nothing is learned, no run goes on, so it is asked again at any time.
The rounds are those of requests without a tenant's name, so of another tenant's draft they say nothing. Where the
options say `weigh`, nothing is asked.
"""

from collections.abc import Sequence as Seq
from contextlib import suppress

from outdraft.adapt.acceptance_record import AcceptanceRecord
from outdraft.adapt.diagnose import Diagnosis, diagnose
from outdraft.adapt.kinds import Cure, Kind
from outdraft.adapt.observe import Observed
from outdraft.adapt.room import SHARED, AdaptRoom
from outdraft.adapt.template import ServedMarks
from outdraft.training.live import LiveDraft


class Treatment:
    """Of the draft of one tenant, which has learned nothing yet. `name`: the tenant's folder."""

    def __init__(self, live: LiveDraft, room: AdaptRoom, name: str) -> None:
        self._live, self._room, self._tenant = live, room, room.tenant(name)
        self._is_shared, self._asks = name == SHARED, live.settings.weigh == "auto"
        self._findings = live.findings() if self._asks else []
        self._marks = ServedMarks(marks=live.record.marks)

    def see(self, prompt: Seq[int]) -> None:
        """A prompt that was served."""
        self._marks.add(prompt)

    def begin_run(self) -> None:
        """Ask what is wrong, and learn by its cure from now on."""
        if not self._asks:
            return
        found = self._diagnosis()
        self._live.treat(found.cure)
        told = [one for one in self._tenant.ledger() if one["what"] == "diagnosed"]
        last = (told[-1]["kind"], told[-1]["cure"]) if told else (Kind.UNKNOWN, Cure.NOTHING)
        if last != (found.kind, found.cure) and {last[1], found.cure} != {Cure.NOTHING}:
            self._tenant.note("diagnosed", kind=found.kind, cure=found.cure, reason=f"{found.sentence} ({found.cure})")

    def _diagnosis(self) -> Diagnosis:
        seen, marks = Observed(), self._marks.finding()
        with suppress(ValueError, KeyError, TypeError):
            said = self._room.observed()
            if self._is_shared and said["version"] == self._tenant.version:
                seen = Observed.of(said["examined"])
        promised = AcceptanceRecord.promised(self._tenant.draft or self._room.pair.draft)
        return diagnose(seen, promised, findings=[*self._findings, *([marks] if marks else [])])
