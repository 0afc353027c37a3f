"""The recipe's SQLite databases: what their tables look like and how their rows are made.

A database is a pure function of its name, so a task only carries the name and any process can rebuild the
same rows.
"""

import random
import sqlite3
from dataclasses import dataclass
from functools import cache
from typing import Literal

Kind = Literal["id", "name", "category", "number", "key"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`values` fill a name or category column, `low..high` a number; a key refers to the table `parent`."""

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    parent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: its rows are made column by column."""

    name: str
    num_rows: int
    columns: tuple[Column, ...]

    def of_kind(self, *kinds: Kind) -> list[Column]:
        """The columns of these kinds, in the table's order."""
        return [column for column in self.columns if column.kind in kinds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Tables in an order in which every key refers to an earlier table."""

    name: str
    tables: tuple[Table, ...]

    def table(self, name: str) -> Table:
        """The table of that name; StopIteration when there is none."""
        return next(table for table in self.tables if table.name == name)

    def text(self) -> str:
        """The compact form that prompts carry: one `table(column,column)` a line."""
        return "\n".join(f"{t.name}({','.join(c.name for c in t.columns)})" for t in self.tables)


def _column(name: str, what: str | tuple[int, int]) -> Column:
    """`(low, high)` is a number, `>table` a key, `!A B C` a name column, `A B C` a category."""
    if isinstance(what, tuple):
        return Column(name=name, kind="number", low=what[0], high=what[1])
    if what.startswith(">"):
        return Column(name=name, kind="key", parent=what[1:])
    if what.startswith("!"):
        return Column(name=name, kind="name", values=tuple(what[1:].split()))
    return Column(name=name, kind="category", values=tuple(what.split()))


def _table(table: str, num_rows: int, /, **columns: str | tuple[int, int]) -> Table:
    own = tuple(_column(key, what) for key, what in columns.items())
    return Table(name=table, num_rows=num_rows, columns=(Column(name="id", kind="id"), *own))


PEOPLE = (
    "Ada Bob Cleo Dan Eli Fay Gus Hana Ivan Jon Kim Lea Max Nia Omar Pam Quin Ray Sue Tom Una Vic Wes Xia Yan "
    "Zoe Amir Bela Carl Dora Emil Fred Gina Hugo Iris Jack Kara Luis Mona Nils"
)
CITIES = "Paris Tokyo Berlin Madrid Oslo Rome Lima Cairo"

TRAINING_SCHEMAS = (
    Schema(
        name="company",
        tables=(
            _table(
                "departments",
                9,
                name="!Sales Support Finance Legal Design Research Audit Payroll Quality",
                city=CITIES,
                budget=(20, 95),
            ),
            _table(
                "employees",
                140,
                name="!" + PEOPLE,
                department_id=">departments",
                role="Manager Engineer Analyst Clerk Intern",
                salary=(20, 99),
                age=(20, 64),
            ),
        ),
    ),
    Schema(
        name="shop",
        tables=(
            _table(
                "products",
                24,
                name="!Robot Puzzle Novel Atlas Rake Hose Drum Flute Ball Racket Kite Globe Spade "
                "Harp Skate Lamp Chair Table Knife Radio Clock Mug Tent Boat",
                category="Toys Books Garden Music Sports",
                price=(5, 95),
                stock=(10, 90),
            ),
            _table("customers", 40, name="!" + PEOPLE, city=CITIES, age=(18, 80)),
            _table(
                "orders",
                160,
                product_id=">products",
                customer_id=">customers",
                quantity=(1, 40),
                discount=(1, 60),
            ),
        ),
    ),
    Schema(
        name="library",
        tables=(
            _table(
                "authors",
                26,
                name="!" + PEOPLE,
                country="France Japan Brazil Kenya India Peru",
                age=(20, 95),
            ),
            _table(
                "books",
                130,
                title="!Storm Harbor Mirror Desert Forest Winter Garden Island Bridge Tower River "
                "Shadow Castle Ocean Valley Summer Dragon Secret Silver Golden",
                author_id=">authors",
                topic="History Poetry Travel Science Crime",
                pages=(50, 99),
                copies=(1, 40),
            ),
        ),
    ),
    Schema(
        name="clinic",
        tables=(
            _table(
                "doctors",
                22,
                name="!" + PEOPLE,
                field="Surgery Cardiology Dental Vision Pediatrics",
                fee=(20, 95),
            ),
            _table("patients", 40, name="!" + PEOPLE, ward="North South East West", weight=(40, 99)),
            _table(
                "visits",
                150,
                doctor_id=">doctors",
                patient_id=">patients",
                minutes=(10, 90),
                cost=(20, 99),
            ),
        ),
    ),
    Schema(
        name="school",
        tables=(
            _table(
                "teachers",
                18,
                name="!" + PEOPLE,
                subject="Math Physics Art Latin Biology",
                experience=(1, 40),
            ),
            _table(
                "students",
                140,
                name="!" + PEOPLE,
                teacher_id=">teachers",
                level="Junior Middle Senior",
                score=(20, 99),
                absences=(0, 30),
            ),
        ),
    ),
    Schema(
        name="airline",
        tables=(
            _table(
                "planes",
                20,
                model="!Falcon Eagle Swift Comet Meteor Condor Raven Heron Osprey Kestrel Albatross "
                "Pelican Stork Crane Finch Robin Lark Starling Martin Merlin",
                maker="Boeing Airbus Embraer",
                seats=(40, 98),
                speed=(10, 99),
            ),
            _table(
                "flights",
                150,
                plane_id=">planes",
                origin=CITIES,
                target=CITIES,
                delay=(0, 90),
                price=(20, 99),
            ),
        ),
    ),
)

HELD_OUT_SCHEMA = Schema(
    name="festival",
    tables=(
        _table(
            "bands",
            22,
            name="!Velvet Thunder Mosaic Cactus Lantern Orbit Saffron Tundra Juniper Marble Quartz "
            "Willow Ember Nimbus Cobalt Zephyr Magnet Indigo Pepper Walrus Turbine Gecko",
            genre="Jazz Metal Folk Techno Blues",
            members=(2, 30),
            fame=(10, 99),
        ),
        _table(
            "concerts",
            150,
            band_id=">bands",
            stage="Meadow Arena Cellar Terrace",
            tickets=(20, 99),
            duration=(15, 90),
        ),
    ),
)

SCHEMAS = {schema.name: schema for schema in (*TRAINING_SCHEMAS, HELD_OUT_SCHEMA)}


def _cell(column: Column, row: int, num_rows: int, rng: random.Random, parents: dict[str, int]) -> int | str:
    if column.kind == "id":
        return row + 1
    if column.kind == "key":
        return rng.randrange(1, parents[column.parent] + 1)
    if column.kind == "number":
        return rng.randint(column.low, column.high)
    if column.kind == "name" and num_rows <= len(column.values):
        return column.values[row]
    return rng.choice(column.values)


def build(schema: Schema) -> sqlite3.Connection:
    """An in-memory database with the schema's rows; the same rows for the same schema, on every machine."""
    rng = random.Random(f"{schema.name}\n{schema.text()}")
    connection = sqlite3.connect(":memory:")
    num_rows = {table.name: table.num_rows for table in schema.tables}
    for table in schema.tables:
        parts: list[str] = []
        for column in table.columns:
            kind = "TEXT" if column.kind in ("name", "category") else "INTEGER"
            extra = {"id": " PRIMARY KEY", "key": f" REFERENCES {column.parent}(id)"}.get(column.kind, "")
            parts.append(f"{column.name} {kind}{extra}")
        connection.execute(f"CREATE TABLE {table.name} ({', '.join(parts)})")
        rows = [
            [_cell(column, row, table.num_rows, rng, num_rows) for column in table.columns]
            for row in range(table.num_rows)
        ]
        marks = ",".join("?" * len(table.columns))
        connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", rows)
    connection.commit()
    return connection


@cache
def database_bytes(name: str) -> bytes:
    """The SQLite file of one of SCHEMAS, as bytes. Raises ValueError for an unknown name."""
    if name not in SCHEMAS:
        raise ValueError(f"there is no generated database {name!r}; known: {', '.join(sorted(SCHEMAS))}")
    connection = build(SCHEMAS[name])
    try:
        return connection.serialize()
    finally:
        connection.close()
