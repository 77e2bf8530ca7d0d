"""config.json as typed keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from poot.errors import FormatError
from poot.llm.json_config import keys_of, part, read_json_config


def test_objects_are_dotted_lists_are_tuples_and_nulls_are_left_out(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"a": {"b": {"c": 1}}, "d": [1, 2], "e": None, "f": [{}], "g": "x"}))
    keys = read_json_config(path)
    assert dict(keys.values) == {"a.b.c": 1, "d": (1, 2), "g": "x"}
    assert dict(part(keys, "a").values) == {"b.c": 1}


def test_objects_nest_so_deep_and_no_deeper():
    deep: dict[str, object] = {"x": 1}
    for _ in range(9):
        deep = {"x": deep}
    with pytest.raises(FormatError, match="objects nest more than 8 deep"):
        keys_of("config.json", deep)


def test_a_file_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(FormatError, match=r"config\.json: can't be read"):
        read_json_config(tmp_path / "config.json")
