"""The document tells the truth: whatever it allows or forbids, the server answers as documented and never fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
from store_processes import served

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "allow_header_conformance",
)
SUPPORT = Path(__file__).parents[1] / "support"


def test_no_request_that_the_document_suggests_is_answered_otherwise_than_documented(tmp_path: Path) -> None:
    with served("--token", "admin", folder=tmp_path) as process:
        command = [str(Path(sys.executable).with_name("st")), "run", f"{process.url}/openapi.json"]
        options = {
            "--checks": ",".join(CHECKS),
            "--max-examples": "12",
            "--header": "Authorization: Bearer admin",
            "--seed": "1",
            "--phases": "coverage,fuzzing,stateful",
        }
        ended = subprocess.run(
            [
                *command,
                *(part for option in options.items() for part in option),
                "--generation-database",
                "none",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(SUPPORT)},
        )
        assert ended.returncode == 0, ended.stdout[-30000:] + ended.stderr[-2000:]
        assert "Tested: " in ended.stdout, ended.stdout[-3000:]
        assert httpx.get(f"{process.url}/v1/health").json()["status"] == "ok"
