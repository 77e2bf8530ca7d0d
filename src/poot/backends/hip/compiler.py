"""HIP text to code objects by hiprtc on the user's machine, kept on disk by text, architecture and
compiler version."""

from __future__ import annotations

import hashlib
from typing import Protocol, cast

from poot.backends.hip.loader import MISSING, hiprtc
from poot.cache import DiskCache
from poot.codegen.hip.emit import OPTIONS
from poot.errors import BackendError, BackendUnavailable, LaunchError


class _Program(Protocol):
    """The bindings' handle of a program."""

    def createRef(self) -> object: ...


def _results(what: str, answer: object) -> tuple[object, ...]:
    """What a call returned besides success. Raises BackendError."""
    parts = cast("tuple[object, ...]", answer if isinstance(answer, tuple) else (answer,))
    if parts[0] == hiprtc.hiprtcResult.HIPRTC_SUCCESS:
        return parts[1:]
    raise BackendError(f"{what}: {getattr(parts[0], 'name', parts[0])}")


def compiler_version() -> str:
    """hiprtc's version. Raises BackendUnavailable where it isn't there."""
    if MISSING:
        raise BackendUnavailable(MISSING)
    try:
        major, minor = _results("hiprtcVersion", hiprtc.hiprtcVersion())
    except RuntimeError as e:
        raise BackendUnavailable(f"hiprtc is not there ({e}): install ROCm 6 or newer") from e
    return f"{major}.{minor}"


def compile_text(text: str, name: str, arch: str, cache: DiskCache | None) -> bytes:
    """The code object of one text for an architecture such as "gfx942". Raises LaunchError with
    the compiler's log and the kernel's name."""
    options = (f"--offload-arch={arch}", *OPTIONS)
    head = "\0".join((compiler_version(), *options, text))
    key = hashlib.sha256(head.encode()).hexdigest()
    kept = cache.get(key) if cache is not None else None
    if kept is not None:
        return kept
    made = _compile(text, name, options)
    if cache is not None:
        cache.put(key, made)
    return made


def _compile(text: str, name: str, options: tuple[str, ...]) -> bytes:
    source = bytearray(text.encode() + b"\0")  # a bytearray is not kept by the bindings
    (made,) = _results(
        "hiprtcCreateProgram",
        hiprtc.hiprtcCreateProgram(source, f"{name}.hip".encode(), 0, None, None),
    )
    program = cast("_Program", made)  # what the bindings return
    try:
        words = [o.encode() for o in options]
        status = hiprtc.hiprtcCompileProgram(program, len(words), words)
        try:
            _results("hiprtcCompileProgram", status)
        except BackendError as e:
            raise LaunchError(
                f"kernel {name}: {e.message} for {options[0]}: {_log(program)}"
            ) from e
        (size,) = _results("hiprtcGetCodeSize", hiprtc.hiprtcGetCodeSize(program))
        code = bytearray(cast("int", size))  # the bindings' type of a size
        _results("hiprtcGetCode", hiprtc.hiprtcGetCode(program, code))
        return bytes(code)
    finally:
        _results("hiprtcDestroyProgram", hiprtc.hiprtcDestroyProgram(program.createRef()))


def _log(program: object) -> str:
    (size,) = _results("hiprtcGetProgramLogSize", hiprtc.hiprtcGetProgramLogSize(program))
    log = bytearray(cast("int", size))  # the bindings' type of a size
    _results("hiprtcGetProgramLog", hiprtc.hiprtcGetProgramLog(program, log))
    return bytes(log).rstrip(b"\0").decode(errors="replace").strip()
