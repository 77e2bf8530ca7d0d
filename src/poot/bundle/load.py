"""`program.save` and `poot.load`: a compiled program as a file, and one from a file on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np

from poot.backends.base import Device
from poot.backends.registry import devices, open_device
from poot.binding import bind_weights, need_flag, need_names
from poot.bundle.archive import pack_archive
from poot.bundle.needs import check_needs, lacks
from poot.bundle.read import Bundle, read_bundle
from poot.bundle.weights import read_weights, write_weights, write_whole
from poot.bundle.write import bundle_members
from poot.errors import BackendUnavailable, BindError, FormatError
from poot.foreign_array import on_device
from poot.limits import DeviceLimits
from poot.program import Compiled, MemoryReport
from poot.runner import DeviceRunner, Shared, upload_shared
from poot.session import Session

MOST_BUNDLE = (1 << 32) - 1  # bytes: what a zip without extensions holds


def save(
    program: Compiled,
    path: str | Path,
    weights: Mapping[str, object] | None,
    weights_path: str | Path | None,
    allow_nonfinite: bool,
) -> None:
    """What `Program.save` does."""
    need_flag(allow_nonfinite, "allow_nonfinite")
    file = _path(path, "save")
    whole = pack_archive(bundle_members(program))
    if weights is None and weights_path is not None:
        raise BindError("save needs the weights that weights_path is to hold")
    if weights is not None:
        lists = program.lists()
        arrays = bind_weights(lists.signatures, weights, allow_nonfinite)
        beside = file.with_suffix(".safetensors")
        if weights_path is not None:
            beside = _path(weights_path, "save")
        _written(beside, lambda: write_weights(beside, lists, arrays, program.key))
    _written(file, lambda: write_whole(file, iter((whole,))))


def _path(value: object, what: str) -> Path:
    """Raises BindError where the value names no file."""
    if isinstance(value, (str, Path)) and "\0" not in str(value):
        return Path(value)
    raise BindError(f"{what} needs a file's path, a text or a Path: got {value!r}"[:200])


def _written(file: Path, write: Callable[[], None]) -> None:
    try:
        write()
    except OSError as e:
        raise BindError(f"{file} can't be written: {e.strerror}") from e


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """A program from a bundle: immutable, shared by any number of sessions. `target` is the name of
    the device that it runs on."""

    bundle: Bundle
    device: Device = field(compare=False)
    target: str

    @property
    def limits(self) -> DeviceLimits:
        """The device's."""
        return self.device.limits

    @property
    def key(self) -> str:
        """The key of the program that was saved."""
        return self.bundle.key

    @property
    def digest(self) -> str:
        """The bundle file's sha256, as hex."""
        return self.bundle.digest

    def memory(self) -> MemoryReport:
        """What a session will take, and whether it fits."""
        return MemoryReport(self.bundle.lists.spaces, self.limits.memory_nbytes)

    def explain(self) -> str:
        """What the compile reported when the program was saved."""
        return self.bundle.explained

    def bind(
        self,
        weights: Mapping[str, object] | str | Path | None = None,
        *,
        allow_nonfinite: bool = False,
        device_outputs: bool = False,
    ) -> Session:
        """A session, as `Program.bind` makes it; `weights` may also be the path of the file that
        `save` wrote, whose tensors are as the device holds them. Raises BindError or
        FormatError."""
        need_flag(allow_nonfinite, "allow_nonfinite")
        need_flag(device_outputs, "device_outputs")
        lists = self.bundle.lists
        if isinstance(weights, (str, Path)):
            stored = read_weights(_path(weights, "bind"), lists, self.key)
            shared = self._uploaded(stored)
        else:
            named = need_names({} if weights is None else weights, "bind")
            given = {name: on_device(self.device, value, name) for name, value in named.items()}
            arrays = bind_weights(lists.signatures, given, allow_nonfinite)
            shared = upload_shared(lists, self.device, arrays)
        loaded = self.device.load(self.bundle.codes)
        runner = DeviceRunner(lists, self.device, loaded, shared)
        return Session(self, runner, lists.signatures, device_outputs)

    def _uploaded(self, stored: Mapping[str, np.ndarray]) -> Shared:
        """Weights that are packed already, and Consts."""
        lists = self.bundle.lists
        shared = upload_shared(lists, self.device, {})
        for r in lists.residents:
            if r.name in stored and r.place.nbytes:
                buffer = shared.buffers[r.place.space]
                self.device.copy_in(buffer, r.place.offset, stored[r.name])
        return shared


def load(
    path: str | Path, target: str | Device = "auto", *, digest: str | None = None
) -> LoadedProgram:
    """The program of a bundle, on a device that can run it.

    `target` is a device's name, a device that the caller opened, or "auto": the first that has what
    the bundle needs. `digest` is the sha256 that the file must have, as hex: kernels are code, so
    load bundles of those whose programs you would run. Raises FormatError where the file is no
    bundle of this version, CapabilityError naming both sides where the device can't run it, and
    BackendUnavailable where no device can."""
    file = _path(path, "load")
    if digest is not None and not isinstance(cast("object", digest), str):  # the user's
        raise BindError(f"digest needs a sha256 as hex: got {digest!r}"[:200])
    try:
        size = file.stat().st_size
        if size > MOST_BUNDLE:
            raise FormatError(f"{file.name}: {size} bytes are more than a bundle has")
        data = file.read_bytes()
    except OSError as e:
        raise FormatError(f"{file.name}: can't be read: {e.strerror}") from e
    bundle = read_bundle(data, file.name)
    if digest is not None and bundle.digest != digest.lower():
        raise FormatError(f"{file.name}: its sha256 is {bundle.digest}, not {digest}")
    name, device = _device(bundle, target, file.name)
    check_needs(bundle.needs, device.limits, file.name)
    return LoadedProgram(bundle, device, name)


def _device(bundle: Bundle, target: str | Device, who: str) -> tuple[str, Device]:
    if not isinstance(target, str):
        if not isinstance(getattr(target, "limits", None), DeviceLimits):
            raise BackendUnavailable(f"a target is a device's name or a device: got {target!r}")
        return target.limits.name, target
    if target != "auto":
        return target, open_device(target)
    refused: list[str] = []
    rows = [r for r in devices() if r.limits is not None]
    for row in sorted(rows, key=lambda r: r.limits is not None and r.limits.is_software):
        assert row.limits is not None
        missing = lacks(bundle.needs, row.limits)
        if not missing:
            return row.name, open_device(row.name)
        refused.append(f"{row.name}: it {'; it '.join(missing)}")
    raise BackendUnavailable(f"{who} runs on no device here: {' | '.join(refused)}")
