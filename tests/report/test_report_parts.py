from __future__ import annotations

import re

import pytest

from leakgauge.catalogue import CATALOGUE
from leakgauge.errors import InvalidCase
from leakgauge.report.parts import catalogue_parts, first_sentence, named_parts

PARTS = catalogue_parts()


def test_every_part_of_the_catalogue_is_there_once_with_a_sentence_and_a_command() -> None:
    assert [(one.kind, one.name) for one in PARTS] == [(kind, name) for kind in CATALOGUE for name in CATALOGUE[kind]]
    assert [one.name for one in PARTS if not one.summary or one.name not in one.commands[0]] == []


def test_no_sentence_is_cut_within_a_citation_and_none_holds_python() -> None:
    assert [one.name for one in PARTS if one.summary.count("[") != one.summary.count("]")] == []
    assert [one.name for one in PARTS if ">>>" in one.words or "``" in one.words] == []
    # What has no words of its own is given its signature by Python.
    assert [one.name for one in PARTS if re.match(r"\w+\(.*\)$", one.summary)] == []


def test_a_search_finds_all_of_its_words_in_names_and_descriptions() -> None:
    found = {one.name for one in PARTS if one.kind == "attacks" and one.matches("span")}
    assert {"span_matching", "token_spans"} <= found
    assert all(re.search("geiping", one.words, re.IGNORECASE) for one in PARTS if one.matches("geiping et al"))
    assert not any(one.matches("no such words at all") for one in PARTS)


def test_a_name_is_found_with_its_options_and_in_every_kind_that_has_it() -> None:
    assert [one.kind for one in named_parts("mixup:k=4")] == ["defences", "schemes"]
    assert "Best(" in named_parts("best")[0].made_of


def test_a_name_that_is_not_there_is_answered_by_the_nearest() -> None:
    with pytest.raises(InvalidCase, match="did you mean dpsgd"):
        named_parts("dpsdg")
    with pytest.raises(InvalidCase, match="leakgauge list"):
        named_parts("qqqqqq")


def test_a_sentence_ends_where_it_ends() -> None:
    assert first_sentence("It takes 0.5 s. Then more.") == "It takes 0.5 s."
    assert first_sentence("After Carlini et al. [2021]; so be it.") == "After Carlini et al. [2021]; so be it."
    assert (
        first_sentence("Wide, and Prop. 3.1 reads it [ibid., A.2]. More.")
        == "Wide, and Prop. 3.1 reads it [ibid., A.2]."
    )
    assert first_sentence("as in Geiping et al. (2020), with labels") == "as in Geiping et al. (2020), with labels"


def test_no_summary_stops_short_of_the_sentence_it_begins() -> None:
    for one in PARTS:
        first = one.words.split("\n\n", maxsplit=1)[0]
        rest = first[len(one.summary) :].strip()
        assert not rest or rest[0].isupper() or rest[0] in "`[(", (one.name, one.summary)
