"""What a method says of its paper agrees with the place that it links to."""

import importlib
from importlib.util import module_from_spec

import pytest

from outdraft.core.method import Paper, arxiv
from outdraft.core.registry import names

ARXIV = "https://arxiv.org/abs/"


@pytest.mark.parametrize("name", names("drafter"), ids=lambda name: f"of-{name}")
def test_the_year_is_that_of_the_papers_number(name):
    """An arXiv number begins with the year and the month. The file is run once more, apart from what others hold."""
    spec = importlib.import_module(f"outdraft.drafters.{name}").__spec__
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    paper = module.METHOD.paper
    if paper is None or not paper.link.startswith(ARXIV):
        pytest.skip("no paper, or none on arXiv")
    assert paper.year == 2000 + int(paper.link.removeprefix(ARXIV)[:2])


def test_a_number_on_arxiv_says_link_and_year():
    assert arxiv("2211.17192", "A") == Paper(title="A", year=2022, link="https://arxiv.org/abs/2211.17192")
