"""Adapters loaded by clients."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse

import openai
import pytest

from poot.llm.adapters import Modules
from poot.llm.models.paged_llama import llama_modules
from poot.llm.server.limits import ServerLimits
from poot.llm.server.loading import AdapterLoader
from tests.llm.test_adapters import tensors_of, write
from tests.support.http_server import Running, service, serving
from tests.support.paged_tiny import config

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two adapters in a folder, and one beside it."""
    top = tmp_path_factory.mktemp("top")
    (top / "root").mkdir()
    for seed, place in enumerate(("root/one", "root/two", "secret")):
        write(top / place, tensors_of(seed))
    (top / "root/link").symlink_to(top / "secret")
    (top / "root/loop").symlink_to(top / "root/loop")
    return top / "root"


@pytest.fixture(scope="module")
def running(root: Path) -> Iterator[Running]:
    made = service()
    loader = AdapterLoader(made, Modules(llama_modules(config()), {"q": 4, "k": 2}), root)
    with serving(made, loader=loader) as served:
        yield served


def post(running: Running, path: str, key: str = "", **body: object) -> tuple[int, str]:
    where = urlparse(running.url)
    link = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    link.request("POST", path, json.dumps(body), headers)
    answer = link.getresponse()
    text = answer.read().decode()
    link.close()
    return answer.status, text


def text_of(running: Running, model: str) -> str:
    url = f"{running.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        got = client.completions.create(model=model, prompt="the a", temperature=0, max_tokens=8)
    return got.choices[0].text


def test_a_loaded_adapter_is_a_model_until_it_is_unloaded(running: Running):
    assert post(running, LOAD, lora_name="x", lora_path="one") == (200, "the adapter x is loaded")
    one = text_of(running, "x")
    assert one != text_of(running, "tiny")
    status, text = post(running, LOAD, lora_name="x", lora_path="two")
    assert (status, "already" in text) == (400, True)
    assert post(running, LOAD, lora_name="x", lora_path="two", load_inplace=True)[0] == 200
    assert text_of(running, "x") != one
    assert post(running, UNLOAD, lora_name="x", lora_int_id=1)[0] == 200
    with pytest.raises(openai.NotFoundError):
        text_of(running, "x")
    status, text = post(running, UNLOAD, lora_name="x")
    assert (status, "there is no adapter" in text) == (404, True)


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "link",
        "loop",
        "none",
        "one/adapter_config.json",
        "a\0b",
        "/etc",
        "a" * 300,
        "one/" + "b" * 256,
        ".",
        "one/..",
    ],
)
def test_folders_elsewhere_are_not_looked_at(running: Running, path: str):
    status, text = post(running, LOAD, lora_name="y", lora_path=path)
    assert status == 400
    assert "lora_path" in text
    assert "root" not in text, "where the adapters lie is nobody's business"


def test_a_folder_with_a_link_to_elsewhere_is_none_of_them(running: Running, root: Path):
    away = root.parent / "away.safetensors"
    away.write_bytes((root / "one" / "adapter_model.safetensors").read_bytes())
    linked = root / "linked"
    linked.mkdir()
    config = (root / "one" / "adapter_config.json").read_bytes()
    (linked / "adapter_config.json").write_bytes(config)
    (linked / "adapter_model.safetensors").symlink_to(away)
    assert post(running, LOAD, lora_name="l", lora_path="linked")[0] == 400


def test_a_whole_path_below_the_root_is_one_of_its_folders(running: Running, root: Path):
    assert post(running, LOAD, lora_name="z", lora_path=str(root / "one"))[0] == 200
    assert post(running, UNLOAD, lora_name="z")[0] == 200


def test_what_is_no_adapter_or_finds_no_place_is_the_clients_fault(running: Running, root: Path):
    assert post(running, LOAD, lora_name="tiny", lora_path="one")[0] == 400
    assert post(running, LOAD, lora_name="", lora_path="one")[0] == 400
    (root / "empty").mkdir()
    status, text = post(running, LOAD, lora_name="y", lora_path="empty")
    assert (status, "can't be loaded" in text) == (400, True)
    for name in ("a", "b"):
        assert post(running, LOAD, lora_name=name, lora_path="one")[0] == 200
    status, text = post(running, LOAD, lora_name="c", lora_path="one")
    assert (status, "all 2 places" in text) == (400, True)
    for name in ("a", "b"):
        assert post(running, UNLOAD, lora_name=name)[0] == 200


def test_without_a_loader_there_is_no_such_path_and_a_key_is_asked_for(root: Path):
    made = service()
    with serving(made) as plain:
        assert post(plain, LOAD, lora_name="x", lora_path="one")[0] == 404
    made = service()
    loader = AdapterLoader(made, Modules(llama_modules(config()), {"q": 4, "k": 2}), root)
    with serving(made, ServerLimits(api_key="sesame"), loader) as kept:
        assert post(kept, LOAD, lora_name="x", lora_path="one")[0] == 401
        assert post(kept, LOAD, "sesame", lora_name="x", lora_path="one")[0] == 200
