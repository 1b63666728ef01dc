"""Sizes and conditions against Python's own arithmetic, guards against trying every value."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splitproof.model import satisfy
from splitproof.model.satisfy import satisfiable
from splitproof.model.symbol import PASS, Condition, Expr, SymbolError

#: The same examples each time, however slow the machine.
steady = settings(max_examples=80, deadline=None, derandomize=True)

#: Names that hold other names, and the built-in one.
NAMES = ["n_tokens", "passes", "bypass", "pass_", "android", "n", PASS]
small = st.integers(0, 12)
values = st.fixed_dictionaries({name: st.integers(0, 20) for name in NAMES})


@st.composite
def linear_texts(draw: st.DrawFn, depth: int = 3) -> str:
    kind = draw(st.sampled_from(["number", "symbol", "+", "-", "*", "neg", "()"]))
    if depth == 0 or kind in ("number", "symbol"):
        return str(draw(small)) if kind == "number" else draw(st.sampled_from(NAMES))
    inner = draw(linear_texts(depth - 1))
    if kind in ("neg", "()"):
        return f"-({inner})" if kind == "neg" else f"({inner})"
    if kind == "*":
        parts = [f"({inner})", str(draw(small))]
        return "*".join(parts if draw(st.booleans()) else parts[::-1])
    space = draw(st.sampled_from(["", " ", "  "]))
    return f"{inner}{space}{kind}{space}{draw(linear_texts(depth - 1))}"


@st.composite
def condition_texts(draw: st.DrawFn) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        left = draw(linear_texts())
        if draw(st.booleans()):
            left = f"({left}) % {draw(st.integers(1, 5))}"
        op = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
        parts.append(f"{left} {op} {draw(linear_texts())}")
    return " and ".join(parts)


def python_value(text: str, at: dict[str, int]) -> int:
    """What Python makes of the text, ``pass`` (a word of its own there) renamed by token."""
    words = text.replace("(", " ( ").replace(")", " ) ")
    for sign in "+-*%":
        words = words.replace(sign, f" {sign} ")
    spelled = " ".join("_the_pass" if word == PASS else word for word in words.split())
    return eval(spelled, {"__builtins__": {}}, {**at, "_the_pass": at[PASS]})


@steady
@given(linear_texts(), values)
def test_value_is_pythons(text: str, at: dict[str, int]) -> None:
    assert Expr.of(text).value(at) == python_value(text, at)


@steady
@given(linear_texts())
def test_text_of_an_expression_reads_back(text: str) -> None:
    expr = Expr.of(text)
    assert Expr.of(str(expr)) == expr
    assert eval(repr(expr), {"Expr": Expr}) == expr


@steady
@given(condition_texts(), values)
def test_condition_is_pythons(text: str, at: dict[str, int]) -> None:
    condition = Condition.of(text)
    assert condition.holds(at) == bool(python_value(text, at))
    assert Condition.of(str(condition)) == condition


@steady
@given(condition_texts(), values)
def test_substitution_keeps_the_meaning(text: str, at: dict[str, int]) -> None:
    condition = Condition.of(text)
    some = {name: at[name] for name in NAMES[:3]}
    rest = condition.substitute(some)
    assert not rest.symbols & some.keys()
    assert rest.holds(at) == condition.holds(at)


@steady
@given(st.lists(linear_texts(1), min_size=1, max_size=3))
def test_bounds_of_products_without_squares_are_exact(texts: list[str]) -> None:
    ranges = {name: (i % 3, i % 3 + 2) for i, name in enumerate(NAMES)}
    total = Expr.of(1)
    for text in texts:
        total = total * Expr.of(text)
    names = sorted(total.symbols)
    if len(names) > 4 or any(len(set(m)) < len(m) for m, _ in total.terms):
        return
    points = itertools.product(*(range(a, b + 1) for a, b in (ranges[n] for n in names)))
    found = [total.value(dict(zip(names, point, strict=True))) for point in points]
    assert total.bounds(ranges) == (min(found), max(found))


def test_bounds_of_a_square_hold() -> None:
    n = Expr.symbol("n")
    low, high = (n * n - n).bounds({"n": (0, 4)})
    assert low <= 0 and high >= 12


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a number or a symbol was due"),
        ("n n", "'n' was not due"),
        ("a*b", "two symbols are multiplied"),
        ("2**n", "was due, not '*'"),
        ("n.x", "'.' has no meaning there"),
        ("12abc", "'abc' was not due"),
        ("1e9", "'e9' was not due"),
        ("(n", "')' is missing"),
        ("and", "was due, not 'and'"),
        ("n // 2", "'/' has no meaning there"),
        ("1" * 30, "more than 63 bits"),
        ("9999999999*9999999999*n", "more than 63 bits"),
        ("(" * 5000 + "n", "nested too deeply"),
        ("n²", "'²' has no meaning there"),
    ],
)
def test_bad_sizes(text: str, words: str) -> None:
    with pytest.raises(SymbolError, match="is not a linear expression") as caught:
        Expr.of(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n", "one of < <= > >= == != was due, not the end"),
        ("n = 3", "'=' has no meaning there"),
        ("n < 3 or n > 5", "'or' was not due"),
        ("n < 3 and", "not the end"),
        ("n % 0 == 1", "'%' needs a positive number"),
        ("n % m == 1", "'%' needs a positive number"),
        ("n + 1 % 2 == 1", "the sum on the left of '%' needs parentheses"),
        ("1 == n % 2", "'%' stands on the left"),
        ("n % 2", "was due, not the end"),
    ],
)
def test_bad_conditions(text: str, words: str) -> None:
    with pytest.raises(SymbolError, match="is not a condition") as caught:
        Condition.of(text)
    assert words in str(caught.value)


def test_a_chain_is_two_comparisons() -> None:
    assert str(Condition.of("1 < n <= 4")) == "1 < n and n <= 4"


# -- guards -----------------------------------------------------------------------------------


@steady
@given(condition_texts(), st.data())
def test_guards_are_decided_as_by_trying_every_value(text: str, data: st.DataObject) -> None:
    condition = Condition.of(text)
    ranges = {}
    for name in sorted(condition.symbols):
        low = data.draw(st.integers(0, 5))
        ranges[name] = low, low + data.draw(st.integers(0, 3))
    points = itertools.product(*(range(low, high + 1) for low, high in ranges.values()))
    due = any(condition.holds(dict(zip(ranges, point, strict=True))) for point in points)
    found = []
    for few in (satisfy._FEW, 0):  # by enumeration, and by elimination
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(satisfy, "_FEW", few)
            found.append(satisfiable(condition, ranges))
    assert found[0] is due
    assert found[1] in (due, None)


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("x < y and y < x", False),
        ("2*x - 2*y == 1", False),
        ("3*x + 5*y == 7", False),
        ("3*x + 5*y == 8", True),
        ("x % 2 == 0 and x % 2 == 1", False),
        ("x % 97 == 3 and x % 89 == 5", True),
        ("x != x", False),
        ("2*x == y and 3*x == y and x > 0", False),
        ("12345*x - 6789*y == 1", False),
        ("x == y + 12345 and x % 7 == 3", True),
        ("x > 1000000000 and 2*x - 4*y == 1", False),
    ],
)
def test_wide_ranges_are_decided_without_trying_them(text: str, due: bool) -> None:
    assert satisfiable(Condition.of(text), {"x": (0, 2**40), "y": (0, 2**40)}) is due
