"""Predicates are read as they are meant, whatever they compare; other text is refused with what to write."""

from __future__ import annotations

import operator as operators

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.errors import LocalError, VeilcastError
from veilcast.machine import Publication, Value
from veilcast.topics import Equal, Label, Range
from veilcast.topics.interests import MAX_CONSTRAINTS
from veilcast.topics.predicates import OPERATORS, Predicate, parse_predicates

COMPARE = {"=": operators.eq, "<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}
SMALL: list[int | float] = [-2, -1.5, -1, 0, 0.5, 1]

names = st.sampled_from(["price", "temp", "a b", "[x]", "it's", 'said "no"', ","])
texts = st.one_of(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), st.sampled_from(["5", "-1", "nan"]))
numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
spaces = st.sampled_from(["", " ", "  "])
about_words = st.tuples(names, st.just("="), texts)


@st.composite
def written(draw: st.DrawFn, predicate: Predicate) -> str:
    """A way to write the predicate."""

    def quoted(text: str) -> str:
        quote = draw(st.sampled_from("'\""))
        return quote + text.replace(quote, 2 * quote) + quote

    attribute, operator, value = predicate
    parts = [quoted(attribute), operator, quoted(value) if isinstance(value, str) else repr(value)]
    space = draw(spaces)
    return space + "[" + ",".join(space + part + space for part in parts) + "]" + space


@given(st.data(), st.lists(st.tuples(names, texts), min_size=1, max_size=MAX_CONSTRAINTS, unique=True))
def test_any_string_can_be_asked_for(data: st.DataObject, wanted: list[tuple[str, str]]) -> None:
    text = ",".join(data.draw(written((name, "=", word))) for name, word in wanted)
    assert parse_predicates(text).constraints == tuple(Equal(name, word) for name, word in wanted)


@given(st.data(), numbers, st.sampled_from(OPERATORS), numbers)
def test_a_number_is_compared_as_written(data: st.DataObject, wanted: float, operator: str, value: float) -> None:
    interest = parse_predicates(data.draw(written(("price", operator, wanted))))
    assert interest.matches(Publication((("price", value),))) == COMPARE[operator](value, wanted)
    assert interest.matches(Publication((("price", wanted),))) == COMPARE[operator](wanted, wanted)
    assert not interest.matches(Publication((("price", str(wanted)),)))
    assert not interest.matches(Publication((("other", wanted),)))


@given(
    st.data(),
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(OPERATORS), st.sampled_from(SMALL)), min_size=1),
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(SMALL)), max_size=4),
)
@settings(max_examples=300)
def test_all_predicates_on_an_attribute_must_hold_for_one_value(
    data: st.DataObject, predicates: list[tuple[str, str, float]], pairs: list[tuple[str, Value]]
) -> None:
    """The text is refused exactly if no number meets the predicates of one attribute."""

    def meets(attribute: str, value: Value) -> bool:
        return all(COMPARE[operator](value, wanted) for name, operator, wanted in predicates if name == attribute)

    asked = {name for name, _, _ in predicates}
    between = [value + step for value in SMALL for step in (-0.1, 0, 0.1)]
    text = ",".join(data.draw(written(each)) for each in predicates)
    if any(not any(meets(name, value) for value in between) for name in asked):
        with pytest.raises(LocalError, match="is empty"):
            parse_predicates(text)
        return
    interest = parse_predicates(text)
    matched = all(any(name == attribute and meets(name, value) for name, value in pairs) for attribute in asked)
    assert interest.matches(Publication(tuple(pairs))) == matched


@given(st.text(alphabet="[],=<>'\"ab1-. _", max_size=40))
@settings(max_examples=500)
def test_any_text_is_an_interest_or_is_refused_in_one_line(text: str) -> None:
    problem = ""
    try:
        assert parse_predicates(text).constraints
    except VeilcastError as error:
        problem = str(error)
    assert len(problem.splitlines()) <= 1


def test_the_notation_of_the_papers_is_parsed() -> None:
    bar, dear = Equal("class", "bar"), Range("price", 50, None, low_open=True)
    assert parse_predicates("[class,=,bar],[price,>,50]").constraints == (bar, dear)
    assert parse_predicates("[topic,=,news],[temp,>=,-10]").constraints == (
        *Label("news").constraints,
        Range("temp", -10, None),
    )
    assert parse_predicates(" [ price , <= , 2.5 ] , [zip,=,'123']").constraints == (
        Range("price", None, 2.5),
        Equal("zip", "123"),
    )
    assert parse_predicates("[price,>,-5.5],[class,=,bar],[price,<=,60]").constraints == (
        Range("price", -5.5, 60, low_open=True),
        bar,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "one is missing; write \\[attribute,operator,value\\]"),
        ("class = bar", "cannot read 'class = bar'; write"),
        ("[class,=]", "cannot read '\\[class,=\\]'"),
        ("[class,=,bar] and more", "cannot read 'and more'"),
        ("[class,=,bar][price,>,5]", "cannot read '\\[price,>,5\\]'"),
        ("[class,=,bar],", "one is missing"),
        ("[class,=,'bar]", "cannot read"),
        ("[class,>,bar]", "only = can be asked of it, not '>'"),
        ("[price,!=,5]", "an operator is one of = < <= > >=, not '!='"),
        ("[,=,x]", "an attribute must have 1 to 64 bytes"),
        ("[a,=,]", "a label or string value must have 1 to 256 bytes"),
        ("[a,>,inf]", "is compared with a string"),
        ("[a,>,9223372036854775808]", "must be finite numbers"),
        ("[a,=,1_000],[b,>,1_000]", "'b' is compared with a string"),
        (",".join(f"[a{number},=,1]" for number in range(MAX_CONSTRAINTS + 1)), "1 to 16 constraints"),
    ],
)
def test_text_that_is_no_predicate_is_refused_with_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(LocalError, match=problem):
        parse_predicates(text)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(LocalError, match="predicates are a string"):
        parse_predicates(("class", "=", "bar"))  # type: ignore[arg-type]
