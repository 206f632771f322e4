"""What may be asked of an answer's form: exactly one form, under vLLM's names."""

import pytest

from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams
from outdraft.options.structured import StructuredOutputsParams


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"json": {"type": "object"}}, "json"),
        ({"json": "{}"}, "json"),
        ({"regex": "a+"}, "regex"),
        ({"choice": ["a", "b"]}, "choice"),
        ({"grammar": "start: /a/"}, "grammar"),
        ({"json_object": True}, "json_object"),
        ({"json_object": True, "whitespace_pattern": " "}, "json_object"),
        ({"json_object": False, "regex": "a"}, "regex"),
        ({"json": None, "choice": ("a",)}, "choice"),
        ({"json": "{}", "disable_any_whitespace": True}, "json"),
    ],
)
def test_a_table_is_the_record(given, kind):
    params = SamplingParams(structured_outputs=given)
    assert params.structured_outputs == StructuredOutputsParams(**given) and params.structured_outputs.kind == kind
    assert SamplingParams(structured_outputs=params.structured_outputs) == params


def test_nothing_is_the_default_and_texts_of_one_request_have_the_same_form():
    assert SamplingParams().structured_outputs is None
    several = SamplingParams(n=2, temperature=1.0, structured_outputs={"choice": ["a"]}).singles()
    assert [one.structured_outputs.choice for one in several] == [("a",), ("a",)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one of json, regex, .*; none is given"),
        ({"json_object": False}, "none is given"),
        ({"regex": "a", "choice": ["b"]}, "regex and choice are given"),
        ({"regx": "a"}, "takes no 'regx', did you mean 'regex'"),
        ({"structural_tag": "x"}, "takes no 'structural_tag': write the tags into a grammar"),
        ({"disable_additional_properties": True}, "write additionalProperties: false"),
        ({"regex": 3}, "regex=3 of structured_outputs must be a text"),
        ({"json": 3}, "json=3 of structured_outputs must be a text or a table"),
        ({"json_object": "yes"}, "json_object='yes' of structured_outputs must be true or false"),
        ({"choice": "yes"}, "choice='yes' of structured_outputs must be a list of texts"),
        ({"choice": []}, "must be non-empty texts"),
        ({"choice": ["a", ""]}, "must be non-empty texts"),
        ({"choice": [1]}, "choice=.* must be a list"),
        ({"regex": "a", "disable_any_whitespace": True}, "json and json_object, and not for regex"),
        ({"choice": ["a"], "whitespace_pattern": " "}, "and not for choice"),
        ({"json": {}, "disable_any_whitespace": True, "whitespace_pattern": " "}, "no place for a whitespace_pattern"),
        ("json", "structured_outputs='json' must be a StructuredOutputsParams, or a table"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(RequestError, match=message):
        SamplingParams(structured_outputs=given)


@pytest.mark.parametrize(
    "name", ["guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding", "response_format"]
)
def test_names_of_other_engines_are_explained(name):
    with pytest.raises(RequestError, match=rf"no '{name}'; here it is called structured_outputs \("):
        SamplingParams(**{name: "x"})
