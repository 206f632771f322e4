"""Where a page of the documentation is said to be."""

from email.message import Message

import pytest

from outdraft.core import published


@pytest.mark.parametrize(
    ("links", "told"),
    [
        (["Source, https://example.org/o"], "docs/methods/ngram.md in outdraft's sources"),
        ([], "docs/methods/ngram.md in outdraft's sources"),
        (
            ["Source, https://example.org/o", "Documentation, https://example.org/o/tree/HEAD/docs"],
            "https://example.org/o/tree/HEAD/docs/methods/ngram.md",
        ),
    ],
)
def test_a_page_has_the_address_of_the_package(monkeypatch: pytest.MonkeyPatch, links: list[str], told: str):
    package = Message()
    for link in links:
        package["Project-URL"] = link
    monkeypatch.setattr(published, "metadata", lambda name: package)
    assert published.page("methods/ngram.md") == told


def test_without_an_installed_package_the_sources_are_named(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise published.PackageNotFoundError(name)

    monkeypatch.setattr(published, "metadata", missing)
    assert published.page("faq.md") == "docs/faq.md in outdraft's sources"
