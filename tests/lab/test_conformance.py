"""The matrix: its page is complete and without a failure; it notices a rule that lies, and what does not run."""

import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from contracts.sides import smaller_model
from contracts.spec_rows import GROUNDS, ROWS

from lab.conformance import columns, matrix
from lab.conformance.__main__ import load_rows, main
from lab.conformance.columns import COLUMNS, LEFT_ALONE, Bench
from lab.conformance.matrix import FAIL, LOSSY, PASS, Line, run_line, run_matrix
from lab.conformance.page import write_page
from lab.conformance.record import Record
from lab.conformance.spoiled import Spoiled
from lab.conformance.stand import RecipeSubject, row_of
from lab.conformance.tally import Tally
from lab.conformance.trained import trained_row
from outdraft import zoo
from outdraft.core.registry import find
from outdraft.core.request import Request
from outdraft.engine.naming.recipe import Choice, read_recipe, recipe_names
from outdraft.options.params import SamplingParams
from outdraft.testing import planted
from outdraft.testing.audit import AuditError
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import run
from outdraft.verify.shared.per_draft import PerDraft
from tests.helpers.enumerate_distribution import exact_distribution, target_distribution, total_variation
from tests.helpers.tables import drafts_from, random_table

ROOT = Path(__file__).parents[2]
TABLE = [*GROUNDS, *ROWS]
HEADINGS = [column.heading for column in COLUMNS]


def bench_of(name: str, directory: Path, **changes: object) -> Bench:
    recipe = replace(read_recipe(name), **changes)
    row = row_of(recipe, TABLE)
    return columns.make_bench(
        lambda place, vocab_size: RecipeSubject(recipe, row, place, vocab_size=vocab_size), directory
    )


def only(patch: pytest.MonkeyPatch, *headings: str) -> None:
    """Run these columns of the matrix alone."""
    patch.setattr(matrix, "COLUMNS", tuple(one for one in COLUMNS if one.heading in headings))


def test_the_page_lists_every_recipe_and_no_failure():
    """Rewrite it with `python -m lab.conformance`."""
    page = (ROOT / "docs/conformance.md").read_text()
    lines = [line for line in page.splitlines() if PASS in line and line.startswith("| ")]
    listed = [line.split(" | ")[0].removeprefix("| ") for line in lines]
    assert listed == recipe_names()
    assert FAIL not in page and "## Failures" not in page
    for line in lines:
        name, *cells = line.strip("| ").split(" | ")
        counts = [re.findall(r"\d+", cell) for cell in cells[3:7] if cell != LOSSY]
        seen = all(len(found) == 2 and int(found[0]) >= 20 and int(found[1]) >= 5 for found in counts)
        assert seen == (name != "none"), f"{name}: a cell in which nothing is accepted proves little"
        assert name == "none" or re.fullmatch(rf"{PASS} \d+|{LEFT_ALONE}", cells[7]), f"{name}: nothing was replaced"


def test_a_cell_without_accepted_guesses_fails(monkeypatch: pytest.MonkeyPatch):
    """Every text is right, and yet nothing is proven: the drafter's guesses were all wrong."""
    only(monkeypatch, "greedy identity", "useless draft", "budget 0")
    wrong = DrafterRow(drafter="draft_model", side=smaller_model, label="twin")
    line = run_line(read_recipe("draft_model"), [wrong])
    assert line.cells["useless draft"] == line.cells["budget 0"] == PASS, "these need no right guess"
    assert int(line.told["useless draft"]) > 100
    assert line.cells["greedy identity"] == FAIL
    assert "draft tokens accepted in" in line.failures[0] and "it needs 20, 5 and 3" in line.failures[0]


@pytest.mark.parametrize("name", ["magicdec", "triforce"])
def test_a_cell_in_which_no_guess_is_wrong_fails(name, monkeypatch):
    """The recipe's own budget of 512 or 4096 keys is all of a short text: the drafter is the target."""
    only(monkeypatch, "greedy identity")
    recipe = read_recipe(name)
    idle = next(row for row in ROWS if row.drafter == recipe.drafter.name)
    line = run_line(recipe, [replace(idle, label=name, options={})])
    assert line.cells == {"greedy identity": FAIL}
    assert "and 0 drafts cut short: it needs 20, 5 and 3" in line.failures[0]
    active = run_line(recipe, TABLE)
    assert active.cells == {"greedy identity": PASS} and active.seen["greedy identity"].cut >= 3


def test_what_a_planted_rule_accepts_does_not_count(tmp_path: Path):
    """The biased rule of the sampled check accepts everything; its acceptance is no proof of the recipe's."""
    bench = bench_of("draft_model", tmp_path)
    bench.distributions.engine(verifier=PerDraft(planted.accept_probable))
    run(bench.distributions.engine(verifier=PerDraft(planted.accept_probable)), columns.requests(columns.GREEDY)[1:2])
    assert bench.tally == Tally()
    run(bench.distributions.engine(), columns.requests(columns.GREEDY)[1:2])
    assert bench.tally.drafted > 0


def test_a_policy_that_chooses_has_a_drafter_to_choose(tmp_path: Path):
    """One drafter alone is an arm too: it gets its trials, whatever the clock says."""
    bench = bench_of("draft_model", tmp_path, policy=Choice(name="auto"))
    run(bench.texts.engine(), columns.requests(columns.GREEDY))
    assert bench.tally.drafted >= 11


def test_a_lossy_recipe_is_marked_and_the_rest_is_asked_of_it():
    line = run_line(read_recipe("bild"), TABLE)
    assert not line.failures
    assert line.cells == dict(zip(HEADINGS, [LOSSY, LOSSY, PASS, PASS, PASS, PASS], strict=True))
    assert line.seen["ragged batch"].drafted >= line.seen["ragged batch"].accepted >= 20
    page = write_page([line])
    assert "1 of them lossy" in page and "All hold." in page


def test_a_rule_that_claims_too_much_fails_the_distribution(tmp_path: Path):
    bench = bench_of("draft_model", tmp_path)
    bench.distributions.rule = PerDraft(planted.accept_probable)
    with pytest.raises(AuditError, match="do not have the target's distribution"):
        columns.sampled_distribution(bench)


def test_a_rule_that_keeps_a_wrong_guess_fails_greedy_identity_and_useless_drafts(tmp_path: Path):
    bench = bench_of("ngram", tmp_path)
    bench.texts.rule = find("verifier", "outdraft.testing.accept_all:METHOD").build(None)
    bench.texts.rule.lossless = True
    for check in (columns.greedy_identity, columns.useless_draft):
        with pytest.raises(AuditError, match="differs"):
            check(bench)


def test_what_does_not_run_is_a_failure_with_its_reason():
    homeless = replace(read_recipe("ngram"), name="homeless", drafter=Choice(name="outdraft.drafters.ngram:METHOD"))
    line = run_line(homeless, TABLE)
    assert set(line.cells.values()) == {FAIL}
    page = write_page([line])
    assert "**1 recipes fail**" in page and "- homeless: it does not run" in page and "has no row" in page


@pytest.mark.parametrize(("parents", "rule"), [((-1, 0, 1), "block"), ((-1, 0, 0, 1), "traversal")])
def test_spoiled_guesses_are_honest(parents, rule):
    """The distribution that goes with them is the one that they were drawn from."""
    target, drafter = random_table(4, 2, 1), random_table(4, 2, 2)
    spoiled = Spoiled(find("drafter", "none").build(None, None), 4)

    def propose(tokens, coins):
        return spoiled._spoil(drafts_from(drafter, parents)(tokens, coins))

    distribution = exact_distribution(find("verifier", rule).build(None), target, propose, [0, 1], 3)
    assert total_variation(distribution, target_distribution(target, [0, 1], 3)) < 1e-9


@pytest.mark.parametrize("name", ["jacobi", "pearl"])  # the latter drafts beside the pass
def test_spoiled_guesses_are_useless(name, tmp_path: Path):
    subject = bench_of(name, tmp_path).texts
    engine = subject.engine()
    engine.parts = replace(engine.parts, drafter=Spoiled(engine.parts.drafter, subject.vocab_size))
    outcomes = run(engine, columns.requests(columns.GREEDY))
    drafted, accepted = (
        sum(getattr(o.stats, f"num_{what}_tokens") for o in outcomes) for what in ("draft", "accepted")
    )
    assert drafted > 100 and accepted < drafted / 20


def test_a_drafter_that_never_drafts_fails_useless_drafts(monkeypatch: pytest.MonkeyPatch):
    """Under a lossy rule: no pass too many, and no text that could be wrong."""
    only(monkeypatch, "useless draft", "budget 0")
    silent = Choice(name="ngram", options={"min_ngram": 60, "max_ngram": 64})
    rule = Choice(name="outdraft.testing.accept_all:METHOD")
    line = run_line(replace(read_recipe("ngram"), drafter=silent, verifier=rule), TABLE)
    assert line.cells["useless draft"] == FAIL and line.cells["budget 0"] == PASS
    assert any("useless draft: nothing was drafted" in failure for failure in line.failures)


def test_a_pass_too_many_fails_useless_drafts(tmp_path: Path):
    """Even under a lossy rule, of whose text nothing is promised."""
    subject = bench_of("bild", tmp_path).texts
    columns.useless_draft(Bench(texts=subject, distributions=subject))
    honest = subject.engine

    def engine(**words):
        made = honest(**words)
        forward = made.parts.target.forward
        made.parts.target.forward = lambda packed, taps=(): (forward(packed, taps), forward(packed, taps))[1]
        return made

    subject.engine = engine
    with pytest.raises(AuditError, match="target passes for 24 tokens"):
        columns.useless_draft(Bench(texts=subject, distributions=subject))


def test_guesses_that_cannot_be_replaced_are_reported(tmp_path: Path):
    assert columns.useless_draft(bench_of("early_exit", tmp_path)) == LEFT_ALONE


def test_outside_a_checkout_it_says_what_is_missing(tmp_path: Path, capsys):
    assert main(["--tests", str(tmp_path)]) == 2
    assert "run this in a checkout" in capsys.readouterr().err
    assert load_rows(ROOT / "tests")


def test_a_finished_row_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Unless what it depends on is another; and a row with a failure is run again."""
    ran: list[str] = []

    def fake(recipe, rows):
        ran.append(recipe.name)
        line = Line(recipe=recipe, cells={"budget 0": PASS}, seconds=2.0, trained=True)
        line.seen["greedy identity"] = Tally(drafted=9, accepted=7, runs=3)
        line.failures += ["wrong"] if recipe.name == "eagle" else []
        return line

    monkeypatch.setattr(matrix, "run_line", fake)
    tests = tmp_path / "tests"
    (tests / "contracts").mkdir(parents=True)
    (tests / "contracts/rows.py").write_text("ROWS = []")
    recipes = [read_recipe(name) for name in ("ngram", "eagle", "medusa")]
    path = tmp_path / "build/record.jsonl"
    before = run_matrix(recipes, TABLE, kept=Record(path, tests))
    path.write_text(path.read_text() + '{"key": "half a l')
    after = run_matrix(recipes, TABLE, kept=Record(path, tests))
    assert ran == ["ngram", "eagle", "medusa", "eagle"] and after == before
    run_matrix([replace(recipes[0], policy=Choice(name="auto"))], TABLE, kept=Record(path, tests))
    assert ran[4:] == ["ngram"]
    (tests / "contracts/rows.py").write_text("ROWS = [1]")
    run_matrix(recipes[2:], TABLE, kept=Record(path, tests))
    assert ran[5:] == ["medusa"]


def test_a_head_that_the_zoo_has_trained_is_on_the_bench(tmp_path: Path):
    recipe = read_recipe("eagle")
    make = matrix._subject(recipe, TABLE)
    (tmp_path / "a").mkdir()
    texts, small = make(tmp_path, 61), make(tmp_path / "a", 7)
    assert (texts.vocab_size, small.vocab_size) == (4096, 7)
    assert Path(texts.options.model) == zoo.path("eagle") and texts.decoder.config.num_layers == 6
    assert all(trained_row(read_recipe(name)) is None for name in ("ngram", "layerskip", "draft_model", "medusa"))
    page = write_page([Line(recipe=recipe, cells=dict.fromkeys(HEADINGS, PASS), trained=True)])
    assert "The texts of eagle are those of the [zoo](zoo.md)'s target" in page


@pytest.mark.slow
def test_a_recipe_holds_with_its_trained_head():
    line = run_line(read_recipe("eagle3"), TABLE)
    assert line.trained and not line.failures


@pytest.mark.slow
def test_specdec_plus_plus_stands_on_a_head_whose_answer_matters(tmp_path: Path):
    """Where it lets the draft go on, more is accepted; it seldom stops at the least, and never goes to the end."""
    recipe = read_recipe("specdec_plus_plus")
    subject = RecipeSubject(recipe, row_of(recipe, TABLE), tmp_path)
    asked = [
        Request(
            prompt_token_ids=tuple((7 * i + j) % 61 for j in range(5)),
            params=SamplingParams(max_tokens=40, temperature=0.0),
        )
        for i in range(12)
    ]
    rounds = [event for one in run(subject.engine(), asked) for event in one.events if event.num_draft_tokens > 1]
    lengths = [event.num_draft_tokens for event in rounds]
    assert lengths.count(2) < len(lengths) // 5 and max(lengths) < 20
    middle = sorted(lengths)[len(lengths) // 2]
    shorter, longer = (
        [event.num_accepted for event in rounds if (event.num_draft_tokens < middle) is side] for side in (True, False)
    )
    assert fmean(longer) > fmean(shorter) + 1 and len(shorter) > len(rounds) // 8
