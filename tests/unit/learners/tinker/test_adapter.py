import json
from pathlib import Path

import pytest

from agl.errors import AglError
from agl.learners.tinker.adapter import ABOUT, download, write_about


class SavesNothing:
    def save_pretrained(self, folder: str) -> None:
        (Path(folder) / "tokenizer.json").write_text("{}")


def test_the_folder_says_whose_adapter_it_has(tmp_path: Path) -> None:
    write_about(tmp_path / "policy", {"base_model": "a/b", "weights": "tinker://x"}, SavesNothing())
    assert json.loads((tmp_path / "policy" / ABOUT).read_text()) == {
        "base_model": "a/b",
        "weights": "tinker://x",
    }
    assert (tmp_path / "policy" / "tokenizer.json").is_file()


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", ""])
async def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AglError, match="outside of its folder"):
        await download(
            {name: "http://127.0.0.1:1/secret-signature"}, tmp_path / "policy", timeout_seconds=1.0
        )
    assert not (tmp_path / "evil").exists()
