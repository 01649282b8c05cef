"""Printed figures as intervals, and tables of them with columns known by what they mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd

SLACK = 1e-9  # relative; for binary fractions that miss a decimal edge
MAX_BYTES = 20_000_000


@dataclass(frozen=True)
class AuditFinding:
    """One thing that is wrong."""

    kind: str  # which check, e.g. ``fmr_not_ratio``
    where: str  # row and column
    printed: str  # what is there
    expected: str  # what should
    sentence: str  # both, with the reason


@dataclass(frozen=True)
class Interval:
    """All numbers that a figure may stand for, ends included."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Return the best single guess."""
        return (self.low + self.high) / 2

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __mul__(self, factor: float) -> Interval:
        return Interval(*sorted((self.low * factor, self.high * factor)))

    def times(self, other: Interval) -> Interval:
        """Return the product of two intervals that are not negative."""
        return Interval(max(self.low, 0) * max(other.low, 0), self.high * other.high)

    def over(self, other: Interval) -> Interval:
        """Return the quotient of two intervals that are not negative; up to infinity if the divisor may be zero."""
        return Interval(
            max(self.low, 0) / other.high if other.high > 0 else 0.0,
            self.high / other.low if other.low > 0 else float("inf"),
        )

    def meets(self, other: Interval) -> bool:
        """Return whether some number is in both."""
        room = SLACK * max(1.0, abs(self.high) if self.high < 1e300 else 1.0, abs(other.high))
        return self.low <= other.high + room and other.low <= self.high + room

    def both(self, other: Interval) -> Interval | None:
        """Return the numbers in both, None if there are none."""
        return Interval(max(self.low, other.low), min(self.high, other.high)) if self.meets(other) else None


@dataclass(frozen=True)
class PrintedNumber:
    """A printed number: its text, its value, and how many decimals it was rounded to."""

    text: str
    value: float
    decimals: int

    @property
    def half(self) -> float:
        """Return half a unit of the last decimal."""
        return 0.5 * 10.0**-self.decimals

    @property
    def rounded(self) -> Interval:
        """Return every number that rounds to this figure."""
        return Interval(self.value - self.half, self.value + self.half)

    @property
    def size(self) -> Interval:
        """Return every absolute value that rounds to this figure, whatever its sign."""
        return Interval(max(abs(self.value) - self.half, 0.0), abs(self.value) + self.half)

    @property
    def cut_or_rounded(self) -> Interval:
        """Return every number that rounds to this figure, or is cut to it."""
        return Interval(self.value - self.half, self.value + 2 * self.half)

    @property
    def significant(self) -> int:
        """Return how many significant digits were printed, trailing zeros included."""
        digits = re.sub(r"[^0-9]", "", re.split("e", self.text, flags=re.IGNORECASE)[0])
        return len(digits.lstrip("0"))


_NUMBER = re.compile(r"^[+-]?(\d+(?:\.(\d*))?|\.(\d+))(e[+-]?\d+)?$", re.IGNORECASE)
_MARKS = re.compile(r"^[*_]{2}(.*)[*_]{2}$|^\((.*)\)$")  # bold, or a standard error in parentheses
_AFTER = re.compile(r"\s*(%|pp|p\.p\.|points?|pts|×|x|[*†‡]+)$", re.IGNORECASE)
_SPACED = re.compile(r"(?<=\d)[ \u00a0\u2009\u202f'’](?=\d{3}(?!\d))")
# Decimal commas and points: digits after one that cannot be thousands.
_COMMA = re.compile(
    r"^[+-]?(?!(?:[1-9]\d{0,2})(?:,\d{3})+$)[\d.]*,\d+(?:e[+-]?\d+)?$", re.I
)  # no thousands: a decimal comma
_POINT = re.compile(r"^[+-]?(?![1-9]\d{0,2}(?:\.\d{3})+$)[\d,]*\.\d*(?:e[+-]?\d+)?$", re.I)


def _plain(text: str) -> str:
    """Return a figure without marks and units, with a plain minus and no spaces between thousands."""
    text = text.strip()
    while match := _MARKS.match(text):
        text = (match[1] or match[2] or "").strip()
    while match := _AFTER.search(text):
        text = text[: match.start()].strip()
    return _SPACED.sub("", re.sub("^[−–‑]", "-", text))


@lru_cache(maxsize=100_000)
def figure(text: str, *, comma: bool = False) -> PrintedNumber | None:
    """Read "92.30", "1,246", "28.5 %", "−0.12", "(0.03)"; None for anything that is not one number.

    ``comma``: decimals are after a comma.
    """
    plain = _plain(text)
    plain = plain.replace(".", "").replace(",", ".") if comma else plain.replace(",", "")
    match = _NUMBER.match(plain)
    if not match:
        return None
    decimals = len(match.group(2) or match.group(3) or "")
    exponent = int(match.group(4)[1:]) if match.group(4) else 0
    return PrintedNumber(text.strip(), float(plain), decimals - exponent)


def _has_decimal_commas(cells: Iterable[str]) -> bool:
    """Return whether a table writes 93,33 for 93.33: some commas cannot be thousands, and no point is a decimal one."""
    plain = {re.sub(r"^[<‹≤>›≥=\s]+", "", _plain(text)) for text in cells}
    return any(map(_COMMA.match, plain)) and not any(map(_POINT.match, plain))


_ROLES: tuple[tuple[str, frozenset[str]], ...] = tuple(
    (role, frozenset(names.split()))
    for role, names in (
        ("sa", "sa standard_accuracy clean_accuracy"),
        ("pa", "pa perturbed_accuracy"),
        ("vr", "vr validation_rate validated_share"),
        ("fmr", "fmr"),
        ("n", "n images n_images count sample_size"),
        ("before", "before old dense full"),
        ("after", "after new sparse"),
        ("change", "saving savings saved reduction change improvement speedup difference delta drop"),
        ("estimate", "estimate coef coefficient beta"),
        ("se", "se standard_error std_error std_err stderr"),
        ("t", "t t_value t_stat t_ratio"),
        ("p", "p p_value pvalue pr_t prob_t p_t"),
        ("df", "df degrees_of_freedom"),
        ("low", "low lower ci_low ci_lower lower_ci conf_low 0_025"),
        ("high", "high upper ci_high ci_upper upper_ci conf_high 0_975"),
        ("stars", "stars sig significance"),
        ("size", "params params_m parameters flops gflops seed fold rank epoch epochs step steps year"),
    )
)

ROLE_WORDS = dict(_ROLES)


def role_of(column: str) -> tuple[str, str]:
    """Return (prefix, role) of a column name: ``adm_fmr`` → ("adm", "fmr"); role "" for a name that says nothing."""
    name = re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")
    if "variance" in name or name.startswith("sigma2"):
        return "", "variance"
    if "score" in name.split("_"):
        return "", "score"
    for role, names in _ROLES:
        for known in names:
            if name == known or (role in ("before", "after", "change") and known in name.split("_")):
                return "", role
            if role in ("sa", "pa", "vr", "fmr") and name.endswith("_" + known):
                return name.removesuffix("_" + known), role
    return "", ""


TOTALS = frozenset(("total", "overall", "all", "pooled"))
MEANS = frozenset(("mean", "average", "avg"))


@dataclass(frozen=True)
class Printed:
    """A table of printed figures."""

    name: str  # put before each place
    columns: dict[str, list[str]]  # column → its cells as text
    roles: dict[str, tuple[str, str]]  # column → (prefix, role)
    comma: bool  # decimals are after a comma

    @classmethod
    def of(cls, frame: pd.DataFrame, name: str) -> Printed:
        """Make a table from a frame of strings or numbers."""
        columns = {str(column): [str(value) for value in frame[column]] for column in frame}
        for texts in columns.values():
            texts[:] = ["" if text.lower() in ("nan", "none", "<na>") else text for text in texts]
        roles = {column: role_of(column) for column in columns}
        if {("", "se"), ("", "t")} & set(roles.values()) and (
            plain := [column for column in columns if column.lower() == "b"]
        ):
            # SPSS: B with its standard error, next to the standardised Beta.
            roles = {column: ("", "") if role[1] == "estimate" else role for column, role in roles.items()}
            roles[plain[0]] = ("", "estimate")
        comma = _has_decimal_commas(text for texts in columns.values() for text in texts)
        for column, (_, role) in roles.items():
            if role == "stars" and any(figure(text, comma=comma) for text in columns[column]):
                roles[column] = ("", "p")  # SPSS calls p "Sig."
        return cls(name, columns, roles, comma)

    def number(self, text: str) -> PrintedNumber | None:
        """Return the number that a text of this table stands for."""
        return figure(text, comma=self.comma)

    @property
    def rows(self) -> range:
        """Return the row numbers from 0."""
        return range(len(next(iter(self.columns.values()))))

    @cached_property
    def numeric(self) -> list[str]:
        """Return the columns that hold numbers: at least half of what is not empty."""
        filled = {column: [text for text in texts if text] for column, texts in self.columns.items()}
        numbers = {column: sum(self.number(text) is not None for text in texts) for column, texts in filled.items()}
        return [column for column, texts in filled.items() if texts and 2 * numbers[column] >= len(texts)]

    @cached_property
    def labels(self) -> list[str]:
        """Return the columns that name the rows: whatever is not numeric, or the first one."""
        names = [column for column in self.columns if column not in self.numeric and self.roles[column][1] == ""]
        first = next(iter(self.columns))
        return names or ([first] if self.roles[first][1] == "" else [])

    @cached_property
    def others(self) -> list[str]:
        """Return the numeric columns without a role of their own: scenarios."""
        return [column for column in self.numeric if self.roles[column][1] == "" and column not in self.labels]

    def having(self, role: str) -> dict[str, str]:
        """Return prefix → numeric column of this role, the first one of each."""
        by_prefix: dict[str, str] = {}
        for column in self.all_having(role):
            by_prefix.setdefault(self.roles[column][0], column)
        return by_prefix

    def all_having(self, role: str) -> list[str]:
        """Return all numeric columns of this role."""
        return [column for column in self.numeric if self.roles[column][1] == role]

    def column(self, role: str) -> str | None:
        """Return the numeric column of this role without a prefix; None if there is none."""
        return self.having(role).get("")

    @cached_property
    def _usual_decimals(self) -> dict[str, int]:
        """Return column → decimals that its cells share although some lost trailing zeros on the way to a file."""
        groups = {column: [column] for column in self.numeric}
        groups |= dict.fromkeys(self.others, self.others)
        usual = {}
        for column, group in groups.items():
            figures = [self.number(text) for name in group for text in self.columns[name]]
            tally = Counter(number.decimals for number in figures if number)
            most = max(tally)
            lost_zeros = 2 * tally[most] > tally.total() and not _share_significant_digits(figures, most)
            usual[column] = most if lost_zeros else -1
        return usual

    def figure(self, row: int, column: str | None) -> PrintedNumber | None:
        """Return the number in a cell, with the decimals it was printed with; None if there is none."""
        if column is None or column not in self.columns:
            return None
        number = self.number(self.columns[column][row])
        if number is None:
            return None
        return PrintedNumber(number.text, number.value, max(number.decimals, self._usual_decimals.get(column, -1)))

    def label(self, row: int) -> str:
        """Return what the row is called."""
        return " ".join(self.columns[column][row] for column in self.labels) or f"row {row + 1}"

    def keys(self, row: int) -> set[str]:
        """Return the names in a row, in lower case."""
        return {self.columns[column][row].strip().lower() for column in self.labels}

    def is_total(self, row: int, words: frozenset[str] = TOTALS) -> bool:
        """Return whether a row says it sums up the others."""
        return bool(self.keys(row) & words)

    def place(self, row: int, column: str) -> str:
        """Return row and column in words."""
        where = f"{self.label(row)}, {column}"
        return f"{self.name}: {where}" if self.name else where

    def is_mean_of_rows(self, row: int, column: str) -> bool:
        """Return whether a row says that it averages the others, and this cell does."""
        others = [self.figure(place, column) for place in self.rows if place != row and not self.is_total(place)]
        known, printed = [number.rounded for number in others if number], self.figure(row, column)
        if not (self.is_total(row, MEANS) and known and printed):
            return False
        return (sum(known, Interval(0, 0)) * (1 / len(known))).meets(printed.rounded)

    def slip(self, kind: str, row: int, column: str, printed: str, expected: str, sentence: str) -> AuditFinding:
        """Return a finding about one cell."""
        return AuditFinding(kind, self.place(row, column), printed, expected, sentence)

    def percent(self, column: str) -> bool:
        """Return whether shares are printed in percent: by a sign, or since a fraction could not be so large."""
        most = 2 if self.roles[column][1] == "fmr" else 1  # an FMR is a ratio, and may exceed 1
        return self._largest[column] > most or any("%" in text for text in self.columns[column])

    @cached_property
    def _largest(self) -> dict[str, float]:
        figures = {column: [self.figure(row, column) for row in self.rows] for column in self.columns}
        return {
            column: max((number.value for number in numbers if number), default=0.0)
            for column, numbers in figures.items()
        }

    @cached_property
    def squares_in_percent(self) -> bool:
        """Return whether the squared deviations of the table are percentages."""
        return any(self.percent(column) for column in self.others)


def _share_significant_digits(figures: list[PrintedNumber | None], most: int) -> bool:
    """Return whether a column was printed to a number of significant digits: 0.1004 next to 0.04867 lost no zero."""
    known = [entry for entry in figures if entry and entry.value]
    shorter = [entry for entry in known if entry.decimals < most]
    usual, _ = Counter(entry.significant for entry in known).most_common(1)[0] if known else (0, 0)
    longer = [entry for entry in known if entry.decimals == most]
    fitting = sum(entry.significant == usual for entry in longer)
    return bool(shorter) and 2 * fitting > len(longer) and all(entry.significant == usual for entry in shorter)


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV or tab-separated file with its figures as printed: all strings, empty cells empty."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"There is no table {path}.")
    if path.stat().st_size > MAX_BYTES:
        raise UserError(f"{path} has more than {MAX_BYTES // 1_000_000} MB; an audit is for printed tables.")
    try:
        with path.open(encoding="utf-8-sig") as file:
            header = file.readline()
        mark = max("\t;,", key=header.count)
        table = pd.read_csv(path, dtype=str, keep_default_na=False, sep=mark, encoding="utf-8-sig")
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as a table with a header line and equal rows: {error}.") from error
    return table.rename(columns=lambda name: str(name).strip())
