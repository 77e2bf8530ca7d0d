"""Adapters loaded and unloaded by clients, from folders of one place."""

from __future__ import annotations

import threading
from pathlib import Path

from poot.errors import FormatError, RequestError
from poot.llm.adapters import Modules, read_adapter
from poot.llm.server.schema import LoadAdapter, UnloadAdapter
from poot.llm.server.service import NoSuchModel, Service


class AdapterLoader:
    """Loads adapters into a service's engine from folders below `root`. From any thread."""

    def __init__(self, service: Service, modules: Modules, root: Path) -> None:
        self._service = service
        self._modules = modules
        self._root = root.resolve()
        self._lock = threading.Lock()

    def load(self, asked: LoadAdapter) -> str:
        """Words for the client. Requests that run with an adapter of the name go on with it. Raises
        RequestError for a name that is taken, a folder outside the root, an adapter that poot can't
        read or that doesn't fit, or where no place is free."""
        name, engine = asked.lora_name, self._service.engine
        if name == self._service.name:
            raise RequestError(f"{name} is the model itself; give the adapter another name")
        folder = self._folder(asked.lora_path)
        try:
            adapter = read_adapter(folder, self._modules)
        except FormatError as e:
            raise RequestError(f"the adapter can't be loaded: {e.message}") from e
        with self._lock:
            if name in engine.adapters.names and not asked.load_inplace:
                raise RequestError(
                    f"there is an adapter {name!r} already; unload it, or ask with load_inplace"
                )
            engine.load_adapter(name, adapter)
        return f"the adapter {name} is loaded"

    def _folder(self, path: str) -> Path:
        """A folder below the root whose files lie below it too, links followed. What lies elsewhere
        is not looked at."""
        if "\0" in path:
            raise RequestError("lora_path holds a NUL character")
        try:
            found = (self._root / path).resolve()
            is_below = found.is_relative_to(self._root) and found != self._root
            is_folder = (
                is_below
                and found.is_dir()
                and all(file.resolve().is_relative_to(self._root) for file in found.iterdir())
            )
        except (OSError, RuntimeError, ValueError) as e:  # a loop of links, a name too long
            why = (e.strerror if isinstance(e, OSError) else None) or "a loop of links"
            raise RequestError(f"lora_path can't be followed: {why}") from e
        if not is_folder:
            raise RequestError("lora_path names no folder among this server's adapters")
        return found

    def unload(self, asked: UnloadAdapter) -> str:
        """Words for the client; requests that run go on. Raises NoSuchModel for an unknown name."""
        name, engine = asked.lora_name, self._service.engine
        with self._lock:
            if name not in engine.adapters.names:
                known = ", ".join(engine.adapters.names) or "none"
                raise NoSuchModel(f"there is no adapter {name!r}; loaded: {known}")
            engine.unload_adapter(name)
        return f"the adapter {name} is unloaded"
