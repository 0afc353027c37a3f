import sqlite3
import time
from pathlib import Path

import pytest
from sql_recipe.execution import Limits, QueryError, execute, is_ordered, same_answer

SHOP = "generated:shop"
BIG = f"WITH b(s) AS (SELECT replace('{'a' * 100}', 'a', '{'a' * 190}')) "
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "

REFUSED = [
    "INSERT INTO orders VALUES (999, 1, 1, 1, 1)",
    "DELETE FROM orders",
    "UPDATE orders SET discount = 1",
    "REPLACE INTO orders VALUES (1, 1, 1, 1, 1)",
    "DROP TABLE orders",
    "ALTER TABLE orders ADD COLUMN x",
    "CREATE TABLE x (a)",
    "CREATE TEMP TABLE x (a)",
    "CREATE VIRTUAL TABLE x USING fts5(a)",
    "CREATE VIEW v AS SELECT 1",
    "ATTACH '/tmp/agl_must_not_exist.db' AS x",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO '/tmp/agl_must_not_exist.db'",
    "PRAGMA writable_schema = 1",
    "PRAGMA query_only = 0",
    "PRAGMA table_info(orders)",
    "SELECT * FROM pragma_table_info('orders')",
    "ANALYZE",
    "BEGIN",
    "SAVEPOINT x",
    "SELECT load_extension('x')",
    "SELECT writefile('/tmp/agl_must_not_exist', 'x')",
    "SELECT readfile('/etc/passwd')",
    "SELECT edit('x')",
    "SELECT fts3_tokenizer('x')",
    "SELECT zeroblob(1000000000)",
    "SELECT hex(randomblob(1000000))",
    "SELECT printf('%.*c', 1000000000, 'x')",
    "SELECT format('%1000000000d', 1)",
    "SELECT 1; DROP TABLE orders",
    "SELECT 1; SELECT 2",
    "SELECT ?",
    "SELECT :a",
    "SELECT",
    "SELECT nothing FROM orders",
    "SELECT '\x00'",
    "SELECT '\ud800'",
    "SELECT " + "(" * 1000 + "1" + ")" * 1000,
    "SELECT " + "1+" * 1900 + "1",
    " UNION ALL ".join(["SELECT 1"] * 100),
    "SELECT " + "1," * 5000 + "1",
    "SELECT sum(9223372036854775807) FROM orders",
    BIG + "SELECT replace(s, 'a', s) FROM b",
    BIG + "SELECT group_concat(s) FROM b, orders",
]

RUNAWAY = [
    ENDLESS + "SELECT COUNT(*) FROM c",
    ENDLESS + "SELECT x FROM c",
    ENDLESS + "SELECT x FROM c ORDER BY x DESC",
    ENDLESS + "SELECT json_group_array(x) FROM c",
    "SELECT COUNT(*) FROM orders a, orders b, orders c, orders d",
    "SELECT * FROM orders a, orders b, orders c ORDER BY a.id + b.id * c.id",
    BIG + "SELECT s || a.id || c.id || d.id FROM orders a, orders c, orders d, b ORDER BY 1",
    BIG + "SELECT COUNT(DISTINCT s || a.id || c.id || d.id) FROM orders a, orders c, orders d, b",
    BIG + "SELECT s FROM b, orders a, orders c",
    "SELECT a.id, group_concat(b.id) OVER (ORDER BY a.id) FROM orders a, orders b",
]


HANGS = 30  # seconds; far above every limit, so that only a query that is not stopped takes them


@pytest.mark.parametrize("sql", REFUSED, ids=range(len(REFUSED)))
def test_a_harmful_or_broken_query_is_an_error_at_once(sql: str) -> None:
    started = time.monotonic()
    with pytest.raises(QueryError):
        execute(SHOP, sql)
    assert time.monotonic() - started < HANGS
    assert not Path("/tmp/agl_must_not_exist.db").exists()


@pytest.mark.parametrize("sql", RUNAWAY, ids=range(len(RUNAWAY)))
def test_a_runaway_query_is_stopped(sql: str) -> None:
    started = time.monotonic()
    with pytest.raises(QueryError, match=r"too many steps|out of time|out of memory|more than"):
        execute(SHOP, sql, Limits(seconds=0.3, instructions=5_000_000))
    assert time.monotonic() - started < HANGS


def test_slow_functions_cannot_outlive_the_time_limit() -> None:
    started = time.monotonic()
    for test in (
        "instr(s, substr(s, 1, 9000) || a.id)",
        "s || a.id LIKE '%a%a%a%a%a%a%b'",
        "s || a.id GLOB '*a*[ab]*a*c'",
    ):
        try:
            execute(
                SHOP, f"{BIG} SELECT COUNT(*) FROM orders a, orders c, b WHERE {test}", Limits(seconds=0.2)
            )
        except QueryError as error:
            assert "out of time" in str(error)  # noqa: PT017
    assert time.monotonic() - started < HANGS


def test_the_limits_name_what_was_exceeded() -> None:
    with pytest.raises(QueryError, match="more than 10 rows"):
        execute(SHOP, "SELECT * FROM orders", Limits(rows=10))
    with pytest.raises(QueryError, match="more than 100 bytes"):
        execute(SHOP, "SELECT * FROM orders", Limits(bytes=100))
    with pytest.raises(QueryError, match="longer than 20 characters"):
        execute(SHOP, "SELECT quantity FROM orders", Limits(sql_chars=20))


def test_ordinary_queries_run_and_nothing_is_changed_between_them() -> None:
    before = execute(SHOP, "SELECT COUNT(*), SUM(quantity) FROM orders")
    for sql in ("DELETE FROM orders", "DROP TABLE orders"):
        with pytest.raises(QueryError):
            execute(SHOP, sql)
    assert execute(SHOP, "SELECT COUNT(*), SUM(quantity) FROM orders") == before == [(160, before[0][1])]
    assert execute(SHOP, "WITH t AS (SELECT discount FROM orders) SELECT COUNT(*) FROM t") == [(160,)]
    assert execute(SHOP, "SELECT round(1.234, 2), upper('a'), strftime('%Y', '2020-05-01')") == [
        (1.23, "A", "2020")
    ]


def test_a_file_database_is_opened_read_only(tmp_path: Path) -> None:
    file = tmp_path / "a b?c.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (X'ff'), (CAST(X'ff41' AS TEXT))")
    content = file.read_bytes()
    assert execute(str(file), "SELECT a FROM t") == [(b"\xff",), ("\ufffdA",)]
    with pytest.raises(QueryError):
        execute(str(file), "DELETE FROM t")
    assert file.read_bytes() == content


def test_a_missing_database_is_not_the_querys_fault(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no database file"):
        execute(str(tmp_path / "none.sqlite"), "SELECT 1")
    with pytest.raises(ValueError, match=r"no generated database 'shopp'.*shop"):
        execute("generated:shopp", "SELECT 1")


@pytest.mark.parametrize(
    ("rows", "gold", "ordered", "same"),
    [
        ([(1,), (2,)], [(2,), (1,)], False, True),
        ([(1,), (2,)], [(2,), (1,)], True, False),
        ([(1,), (1,)], [(1,)], False, False),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False, False),
        ([(1, "a")], [("a", 1)], False, False),
        ([(1, 2)], [(1,)], False, False),
        ([(0.1 + 0.2,)], [(0.3,)], False, True),
        ([(3,)], [(3.0,)], False, True),
        ([(3.01,)], [(3,)], False, False),
        ([("3",)], [(3,)], False, False),
        ([(None,)], [(0,)], False, False),
        ([(None,), ("x",)], [("x",), (None,)], False, True),
        ([(0.3, "b"), (0.1 + 0.2, "a")], [(0.3, "a"), (0.1 + 0.2, "b")], False, True),
        ([], [], False, True),
        ([], [(1,)], False, False),
        ([(b"x",)], [(b"x",)], False, True),
        ([(b"x",)], [("x",)], False, False),
    ],
)
def test_answers_are_compared_as_multisets_of_rows(
    rows: list[tuple[object, ...]], gold: list[tuple[object, ...]], ordered: bool, same: bool
) -> None:
    assert same_answer(rows, gold, ordered=ordered) is same


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n by a limit 3", True),
        ("SELECT a FROM t", False),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 3)", False),
        ("SELECT a FROM t WHERE b = 'ORDER BY'", False),
        ("SELECT a, RANK() OVER (ORDER BY b) FROM t", False),
        ("SELECT a FROM t WHERE x IN (SELECT (y) FROM u ORDER BY z) ORDER BY a", True),
        ('SELECT "order by" FROM t', False),
    ],
)
def test_only_the_outermost_order_by_makes_an_answer_ordered(sql: str, ordered: bool) -> None:
    assert is_ordered(sql) is ordered
