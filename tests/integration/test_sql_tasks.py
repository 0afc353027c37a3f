"""The tasks of ``recipes/sql`` are the same wherever they are made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]

DIGEST = """
import hashlib, json
from recipes.sql.data import questions
from recipes.sql.schemas import SCHEMAS, build

digest = hashlib.sha256(json.dumps(questions("schema", 3, 500)).encode())
for schema in SCHEMAS.values():
    digest.update("\\n".join(build(schema).iterdump()).encode())
print(digest.hexdigest())
"""


def test_another_process_makes_the_same_tasks_and_databases() -> None:
    first, second = (
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            cwd=CHECKOUT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("7", "8")
    )
    assert len(first.strip()) == 64
    assert first == second
