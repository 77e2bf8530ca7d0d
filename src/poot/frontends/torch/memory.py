"""torch tensors as the memory of a run: what lies where it can be bound, and what is copied."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from poot.caller_runner import CallerRunner, Operand, Work, can_lie_at
from poot.errors import BindError
from poot.ir.graph import TensorType
from poot.planner.plan import Place

DTYPES = {
    "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn, "i32": torch.int32, "u32": torch.uint32, "i8": torch.int8,
    "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
_QUANTUM = 16


def check(o: Operand, given: torch.Tensor, device: torch.device) -> None:
    """Raises BindError where a tensor is not of the operand's type and device."""
    want = DTYPES[o.type.dtype]
    if given.dtype != want or tuple(given.shape) != o.type.shape:
        raise BindError(f"{o.name} needs {o.type}: got {given.dtype} {tuple(given.shape)}")
    if given.device != device:
        raise BindError(f"{o.name} needs a tensor on {device}: got one on {given.device}")


def empty(type: TensorType, device: torch.device) -> torch.Tensor:
    """An output's memory, whole vectors; a bool lies as words. `seen` gives the output in it."""
    dtype = torch.int32 if type.dtype == "bool" else DTYPES[type.dtype]
    whole = -(-type.elems * dtype.itemsize // _QUANTUM) * _QUANTUM
    return torch.empty(whole // dtype.itemsize, dtype=dtype, device=device)


def seen(memory: torch.Tensor, type: TensorType) -> torch.Tensor:
    """The output that memory of `empty` holds."""
    flat = memory if memory.numel() == type.elems else memory[: type.elems]
    shaped = flat.view(type.shape)
    return shaped != 0 if type.dtype == "bool" else shaped


class Memory:
    """The memory of one run: addresses by space, and the tensors that they are of."""

    def __init__(self, runner: CallerRunner, device: torch.device) -> None:
        self.at: dict[str, tuple[int, int]] = {}
        self.results: torch.Tensor | None = None
        self._runner, self._device = runner, device
        self._held: list[torch.Tensor] = []
        self._work: dict[str, torch.Tensor] = {}
        for work in runner.work:
            self._work[work.space] = made = self._working(work)
            self._hold(work.space, made)
            if work.space == "results":
                self.results = made
        word = runner.word
        if word is not None:
            self._part(word).view(torch.int32).fill_(1)

    def _working(self, work: Work) -> torch.Tensor:
        whole = -(-work.nbytes // _QUANTUM) * _QUANTUM
        if work.is_rest:
            return torch.full((whole,), 0xFF, dtype=torch.uint8, device=self._device)
        return torch.empty(whole, dtype=torch.uint8, device=self._device)

    def _hold(self, space: str, tensor: torch.Tensor) -> None:
        self._held.append(tensor)
        self.at[space] = (tensor.data_ptr(), tensor.numel() * tensor.itemsize)

    def _part(self, place: Place) -> torch.Tensor:
        return self._work[place.space][place.offset : place.offset + place.nbytes]

    def give_slot(self, o: Operand, given: torch.Tensor) -> None:
        """Binds a slot where it lies, or copies it to its place."""
        check(o, given, self._device)
        if not given.numel():
            return
        flat = (given.to(torch.int32) if o.type.dtype == "bool" else given).contiguous()
        if not o.is_fed and can_lie_at(flat.data_ptr(), flat.numel() * flat.itemsize):
            self._hold(o.space, flat)
            return
        raw = flat.reshape(-1).view(torch.uint8)
        self._part(o.place)[: raw.numel()].copy_(raw)

    def give_state(self, o: Operand, given: torch.Tensor) -> None:
        """Binds a State where it lies: it is written there. Raises BindError where it can't be."""
        check(o, given, self._device)
        if not given.numel():
            return
        nbytes = given.numel() * given.itemsize
        if not given.is_contiguous() or not can_lie_at(given.data_ptr(), nbytes):
            raise BindError(
                f"State {o.name} is written where it lies: it needs a contiguous tensor of whole "
                f"{_QUANTUM} bytes at a multiple of them; got {nbytes} bytes at "
                f"{given.data_ptr():#x} of strides {given.stride()}"
            )
        self._hold(o.space, given)

    def take_outputs(self, outputs: Sequence[Operand]) -> list[torch.Tensor]:
        """Memory for each output, or its parts of the results' where nothing is computed."""
        made: dict[int, torch.Tensor] = {}
        for o in outputs:
            if o.type.elems and o.place.offset not in made:
                made[o.place.offset] = empty(o.type, self._device)
                self._hold(o.space, made[o.place.offset])
        return [
            made[o.place.offset]
            if o.type.elems
            else torch.empty(0, dtype=DTYPES[o.type.dtype], device=self._device)
            for o in outputs
        ]


def host_bytes(results: torch.Tensor, nbytes: int) -> np.ndarray:
    """The first bytes of the results, waited for."""
    return results[:nbytes].cpu().numpy()
