"""What questions are made of: filters in words and in SQL, and the choice of tables and columns.

A condition is kept only when it is true for some rows of the table and false for others.
"""

import random
import sqlite3
from dataclasses import dataclass

from .schemas import Column, Schema, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and the gold query that answers it."""

    text: str
    sql: str
    family: str
    ordered: bool = False
    where: str = ""  # the part of `sql` that must matter: without it the answer has to be another one
    no_ties: str = ""  # a query that must answer 1 for the question to have one right answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions in words (with a leading space) and as the text after FROM; both empty for all rows."""

    words: str = ""
    where: str = ""


class Asker:
    """Samples questions about one schema; holds the open database to look at the answers."""

    def __init__(self, schema: Schema, database: sqlite3.Connection, rng: random.Random) -> None:
        self.schema = schema
        self.database = database
        self.rng = rng

    def one(self, sql: str) -> object:
        """The first cell of the answer."""
        return self.database.execute(sql).fetchone()[0]

    def condition(self, table: Table, prefix: str, avoid: str) -> tuple[str, str] | None:
        """One comparison in words and SQL that is true for some rows of `table` but not for all, or None."""
        rng = self.rng
        columns = [c for c in table.of_kind("category", "number") if c.name != avoid]
        if not columns:
            return None
        column = rng.choice(columns)
        name, full = column.name, prefix + column.name
        if column.kind == "category":
            one, other = rng.sample(column.values, 2)
            words, test = rng.choice(
                (
                    (f"with {name} {one}", f"= '{one}'"),
                    (f"whose {name} is {one}", f"= '{one}'"),
                    (f"whose {name} is not {one}", f"!= '{one}'"),
                    (f"whose {name} is {one} or {other}", f"IN ('{one}', '{other}')"),
                )
            )
        else:
            low, high = sorted(rng.sample(range(column.low, column.high + 1), 2))
            words, test = rng.choice(
                (
                    (f"with {name} above {low}", f"> {low}"),
                    (f"with {name} greater than {low}", f"> {low}"),
                    (f"with {name} below {high}", f"< {high}"),
                    (f"with {name} less than {high}", f"< {high}"),
                    (f"with {name} of at least {low}", f">= {low}"),
                    (f"with {name} of at most {high}", f"<= {high}"),
                    (f"with {name} between {low} and {high}", f"BETWEEN {low} AND {high}"),
                )
            )
        matching = self.one(f"SELECT COUNT(*) FROM {table.name} WHERE {column.name} {test}")
        return (words, f"{full} {test}") if 2 <= int(str(matching)) <= table.num_rows - 2 else None

    def filter(
        self, table: Table, weights: tuple[int, int, int] = (2, 6, 2), *, prefix: str = "", avoid: str = ""
    ) -> Filter:
        """Zero, one or two conditions, drawn with these weights, none of them on the column `avoid`."""
        wanted = self.rng.choices((0, 1, 2), weights)[0]
        found = [c for c in (self.condition(table, prefix, avoid) for _ in range(wanted * 3)) if c][:wanted]
        if len(found) == 2 and found[0][1].split()[0] == found[1][1].split()[0]:
            found.pop()
        if not found:
            return Filter()
        return Filter(
            words=" " + " and ".join(w for w, _ in found), where=" WHERE " + " AND ".join(s for _, s in found)
        )

    def shown(self, table: Table) -> Column:
        """A column worth showing: the name column twice as often as the others."""
        names = table.of_kind("name")
        return self.rng.choice([*names, *names, *table.of_kind("name", "category", "number")])

    def pair(self) -> tuple[Table, Table, str]:
        """(child, parent, `FROM child JOIN parent ON ...`)."""
        child, key = self.rng.choice([(t, c) for t in self.schema.tables for c in t.of_kind("key")])
        parent = self.schema.table(key.parent)
        on = f"{child.name}.{key.name} = {parent.name}.id"
        return child, parent, f"FROM {child.name} JOIN {parent.name} ON {on}"
