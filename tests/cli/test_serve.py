"""`poot serve` as a process: it answers, and a signal ends it when what runs has ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import openai
import pytest

from poot.cli.serve import is_loopback, read_key
from poot.errors import RequestError
from tests.support.sources import ROOT
from tests.support.tiny_llama import write_tiny_llama


def test_a_process_serves_until_it_is_told_to_end(tmp_path: Path):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    key = tmp_path / "key"
    key.write_text("sesame\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run = "import sys; from poot.cli import main; sys.exit(main())"
    words = f"serve --model {path} --target oracle --port {port} --capacity 128"
    words += f" --decode-rows 1 --prefill 1x16 --api-key-file {key}"
    said = tmp_path / "said"
    with said.open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", run, *words.split()], stderr=err,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
    try:
        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="sesame", max_retries=0, timeout=20
        )
        until = time.monotonic() + 60
        while True:
            try:
                assert [m.id for m in client.models.list()] == ["tiny"]
                break
            except openai.APIConnectionError:
                assert process.poll() is None, said.read_text()
                assert time.monotonic() < until
                time.sleep(0.05)
        got = client.completions.create(model="tiny", prompt="the", max_tokens=4, temperature=0)
        assert got.usage is not None
        assert got.usage.completion_tokens >= 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) in (0, -signal.SIGTERM)
        client.close()
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in said.read_text()
    assert f"tiny at http://127.0.0.1:{port}/v1" in said.read_text()


def test_a_key_file_holds_one_key(tmp_path: Path):
    key = tmp_path / "key"
    key.write_text(" abc \n")
    assert read_key(key) == "abc"
    for bad in (b"", b" \n", b"\xff\xfe", "\u00e9".encode()):
        key.write_bytes(bad)
        with pytest.raises(RequestError, match="key"):
            read_key(key)
    with pytest.raises(RequestError, match="can't be read"):
        read_key(tmp_path / "none")


@pytest.mark.parametrize(
    "host, is_here",
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_which_hosts_are_this_machine_alone(host: str, is_here: bool):
    assert is_loopback(host) == is_here
