"""`poot serve`: a model over HTTP until the process is asked to end."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TextIO

import uvicorn

from poot.cli.options import Command, Serve
from poot.cli.paged import served
from poot.errors import RequestError
from poot.llm.server.app import make_app
from poot.llm.server.limits import ServerLimits
from poot.llm.server.loading import AdapterLoader
from poot.llm.server.service import Service


def run(command: Command, out: TextIO, err: TextIO) -> None:
    """Loads the model and serves it. SIGINT or SIGTERM ends it: what runs is let end first."""
    assert isinstance(command, Serve)
    key = None if command.api_key_file is None else read_key(command.api_key_file)
    made = served(command.program, err)
    name = command.name or made.checkpoint.file.path.stem
    service = Service(
        made.engine, made.checkpoint.tokenizer, made.checkpoint.template, name, command.most_prompt
    )
    root = command.adapter_root
    if root is not None and not root.is_dir():
        raise RequestError(f"the folder of adapters, {root}, is not there")
    loader = None if root is None else AdapterLoader(service, made.modules, root)
    limits = ServerLimits(
        api_key=key,
        most_bytes=command.most_bytes,
        most_requests=command.most_requests,
        drain=command.drain,
        arrival=command.arrival,
    )
    if key is None and not is_loopback(command.host):
        print(f"anyone who reaches {command.host} may use this server: it has no key", file=err)
    print(f"{name} at http://{command.host}:{command.port}/v1", file=err, flush=True)
    uvicorn.run(
        make_app(service, limits, loader),
        host=command.host,
        port=command.port,
        log_level="warning",
        timeout_graceful_shutdown=max(1, int(command.drain)),
    )


def read_key(path: Path) -> str:
    """The key in a file, without white space round it. Raises RequestError where there is none."""
    try:
        key = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as e:
        raise RequestError(f"the key file {path.name} can't be read: {e}") from e
    if not key or not key.isascii():
        raise RequestError(f"the key file {path.name} needs one key of ASCII characters")
    return key


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
