"""`--where`: a small grammar over the other columns, parsed here and never evaluated as Python.

    condition   := all ("or" all)*
    all         := one ("and" one)*
    one         := "not" one | "(" condition ")" | comparison
    comparison  := column ("==" | "=" | "!=" | "<" | "<=" | ">" | ">=") value
                 | column ["not"] "in" "(" value ("," value)* ")"
                 | column "is" ["not"] "null"
    column      := name | `name in backticks`
    value       := 'text' | "text" | number | true | false

A comparison with null is not true, as in SQL: such rows are left out. The result is an Arrow expression, so that a
Parquet reader can also hold it against the statistics of row groups.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tokenmill.errors import RecipeError

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<quoted>`[^`]+`)
      | (?P<word>[^\W\d][\w.]*)
      | (?P<sign>==|!=|<=|>=|<>|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)
_KEYWORDS = {"and", "or", "not", "in", "is", "null", "true", "false"}
_COMPARISONS = {"==", "=", "!=", "<>", "<", "<=", ">", ">="}


# Parentheses, `not`, and terms of `and` and `or`: what is built from them is nested as deep.
MAX_DEPTH = 200


class WrongTypeError(Exception):
    """A value of a record is of a kind that cannot be compared with the one in the filter."""


class Token(NamedTuple):
    kind: str
    text: str
    start: int


class Where:
    """A parsed condition: the columns it needs, and the Arrow expression it stands for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.columns: list[str] = []
        self._tokens = self._tokenized()
        self._next = self._depth = 0
        self._tree = self._condition()
        if self._peek().kind != "end":
            raise self._error("expected `and`, `or` or the end", self._peek())

    def holds(self, values: list[Any]) -> bool:
        """Whether the condition is true of a record, whose values stand in the order of `columns`."""
        return _truth(self._tree, dict(zip(self.columns, values, strict=True))) is True

    def expression(self) -> Any:
        """The condition as a pyarrow.compute expression."""
        return _expression(self._tree)

    def _tokenized(self) -> list[Token]:
        tokens, place = [], 0
        while self.text[place:].strip():
            match = _TOKEN.match(self.text, place)
            if match is None:
                start = place + len(self.text[place:]) - len(self.text[place:].lstrip())
                raise self._error("cannot read this", Token("?", self.text[start : start + 1], start))
            kind = str(match.lastgroup)
            word, start = match[kind], match.start(kind)
            if kind == "word" and word.lower() in _KEYWORDS:
                kind, word = "keyword", word.lower()
            tokens.append(Token(kind, word, start))
            place = match.end()
        return [*tokens, Token("end", "", len(self.text))]

    def _error(self, what: str, token: Token) -> RecipeError:
        caret = " " * token.start + "^"
        return RecipeError(
            f"cannot understand the filter: {what}\n  {self.text}\n  {caret}",
            hint="for example: --where \"int_score >= 3 and language == 'en'\"",
        )

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += token.kind != "end"
        return token

    def _took(self, *texts: str) -> bool:
        """Take the next token if it is one of these keywords or signs."""
        token = self._peek()
        if token.kind in ("keyword", "sign") and token.text in texts:
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._took(text):
            raise self._error(f"expected `{text}`", self._peek())

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} terms; `in (...)` takes a list of any length", self._peek())

    def _condition(self) -> tuple[Any, ...]:
        self._deeper()
        tree = self._all()
        while self._took("or"):
            self._deeper()
            tree = ("or", tree, self._all())
        return tree

    def _all(self) -> tuple[Any, ...]:
        tree = self._one()
        while self._took("and"):
            self._deeper()
            tree = ("and", tree, self._one())
        return tree

    def _one(self) -> tuple[Any, ...]:
        if self._took("not"):
            self._deeper()
            return ("not", self._one())
        if self._took("("):
            tree = self._condition()
            self._expect(")")
            return tree
        return self._comparison()

    def _comparison(self) -> tuple[Any, ...]:
        column = self._column()
        if self._took("is"):
            negated = self._took("not")
            self._expect("null")
            return ("is null", column, negated)
        negated = self._took("not")
        if negated or self._peek().text == "in":
            self._expect("in")
            self._expect("(")
            values = [self._value()]
            while self._took(","):
                values.append(self._value())
            self._expect(")")
            return ("in", column, values, negated)
        sign = self._take()
        if sign.text not in _COMPARISONS:
            raise self._error("expected a comparison, `in` or `is`", sign)
        return (sign.text, column, self._value())

    def _column(self) -> str:
        token = self._take()
        if token.kind not in ("word", "quoted"):
            raise self._error("expected the name of a column", token)
        name = token.text.strip("`")
        if name not in self.columns:
            self.columns.append(name)
        return name

    def _value(self) -> str | int | float | bool:
        token = self._take()
        if token.kind == "text":
            return re.sub(r"\\(.)", r"\1", token.text[1:-1])
        if token.kind == "number":
            if len(token.text) > 40 or not -(2**63) <= float(token.text) < 2**63:
                raise self._error("this number is too large", token)
            return int(token.text) if token.text.lstrip("-").isdecimal() else float(token.text)
        if token.text in ("true", "false"):
            return token.text == "true"
        raise self._error("expected a text in quotes, a number, true or false", token)


def _expression(tree: tuple[Any, ...]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    match tree:
        case ("and", left, right):
            return _expression(left) & _expression(right)
        case ("or", left, right):
            return _expression(left) | _expression(right)
        case ("not", inner):
            return ~_expression(inner)
        case ("is null", column, negated):
            expression = pc.field(column).is_null()
            return ~expression if negated else expression
        case ("in", column, values, negated):
            # For null it is null, as in SQL; `isin` alone would call it false, and `not in` true.
            field = pc.field(column)
            expression = pc.if_else(field.is_valid(), field.isin(pa.array(values)), pa.scalar(None, pa.bool_()))
            return ~expression if negated else expression
    sign, column, value = tree
    field = pc.field(column)
    match sign:
        case "==" | "=":
            return field == value
        case "!=" | "<>":
            return field != value
        case "<":
            return field < value
        case "<=":
            return field <= value
        case ">":
            return field > value
    return field >= value


def _truth(tree: tuple[Any, ...], record: dict[str, Any]) -> bool | None:
    """True, false, or None where a null leaves it open, as in SQL."""
    match tree:
        case ("and", left, right):
            found = (_truth(left, record), _truth(right, record))
            return False if False in found else None if None in found else True
        case ("or", left, right):
            found = (_truth(left, record), _truth(right, record))
            return True if True in found else None if None in found else False
        case ("not", inner):
            truth = _truth(inner, record)
            return None if truth is None else not truth
        case ("is null", column, negated):
            return bool((record[column] is None) != negated)
        case ("in", column, values, negated):
            if record[column] is None:
                return None
            return bool(any(_compared(column, record[column], value) == 0 for value in values) != negated)
    sign, column, value = tree
    if record[column] is None:
        return None
    order = _compared(column, record[column], value)
    match sign:
        case "==" | "=":
            return order == 0
        case "!=" | "<>":
            return order != 0
        case "<":
            return order < 0
        case "<=":
            return order <= 0
        case ">":
            return order > 0
    return order >= 0


def _compared(column: str, value: Any, other: Any) -> int:
    """Return -1, 0 or 1: less, equal or greater. Numbers compare with numbers, texts with texts, truths with truths."""
    kinds = [
        bool if isinstance(one, bool) else float if isinstance(one, int | float) else type(one)
        for one in (value, other)
    ]
    if kinds[0] is not kinds[1]:
        raise WrongTypeError(f"`{column}` is {value!r:.40}, which cannot be compared with {other!r:.40}")
    return int(value > other) - int(value < other)
