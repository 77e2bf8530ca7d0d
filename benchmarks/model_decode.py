"""A whole decoder at batch 1 on one NVIDIA card: random bf16 weights, Llama's shapes.

    python -m benchmarks.model_decode --models llama-8b llama-1b --out benchmarks/results

First two layers are compared with PyTorch in f64. Then tokens a second: steps whose greedy token
comes to the host and goes back in, and graph replays alone; and each launch's time. With --peer
Hugging Face's model with a static cache under torch.compile, CUDA graphs and all, takes turns with
it; its tokens stay on the device.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import poot
from benchmarks.isolated import machine
from benchmarks.llama_shapes import SHAPES, Shape, decode_graph, random_weights
from benchmarks.record import save
from poot.session import Session

CAPACITY = 1024
READ_TB_S = 4.38


def bound(shape: Shape, layers: int, weights: dict[str, np.ndarray], target: str,
          **options: object) -> tuple[Session, dict[str, object]]:  # fmt: skip
    """A session, and what making it took."""
    start = time.perf_counter()
    graph = decode_graph(shape, CAPACITY, layers, **options)  # type: ignore[arg-type]
    traced = time.perf_counter()
    program = poot.compile({"decode": graph}, target, cache=False)
    made = time.perf_counter()
    session = program.bind(weights, allow_nonfinite=True)
    facts: dict[str, object] = {
        "trace s": traced - start, **{f"{k} s": v for k, v in program.seconds.items()},
        "compile s": made - start, "bind s": time.perf_counter() - made,
        "kernels": len(program.codes), "launches": launches(program),
    }  # fmt: skip
    return session, facts


def launches(program: poot.Program) -> int:
    steps = program.plan.entries[0].steps
    return sum(len(program.lowered[s.request].calls) for s in steps)


def reference(shape: Shape, layers: int, weights: dict[str, np.ndarray], tokens: list[int]) -> Any:
    """Logits of each token, in f64."""

    def of(name: str) -> torch.Tensor:
        array = weights[name]
        return torch.from_numpy(array.astype(np.float32)).cuda().double()

    def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * gain

    heads, kv, dim, n = shape.heads, shape.kv_heads, shape.head_dim, len(tokens)
    cos, sin = (of(f"w.turns.0.{i}")[:n, None, :] for i in range(2))

    def turned(x: torch.Tensor) -> torch.Tensor:
        a, b = x[..., : dim // 2], x[..., dim // 2 :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    rows = torch.from_numpy(weights["w.outer.embed"][tokens].astype(np.float32)).cuda()
    x = rows.double()
    hidden = torch.triu(torch.full((n, n), float("-inf"), device="cuda").double(), 1)
    for i in range(layers):
        w = {name: of(f"w.layers.{i}.{name}") for name in
             ("norm_in", "q", "k", "v", "out", "norm_feed", "gate", "up", "down")}  # fmt: skip
        h = norm(x, w["norm_in"])
        q = turned((h @ w["q"].T).view(n, heads, dim)).transpose(0, 1)
        k = (
            turned((h @ w["k"].T).view(n, kv, dim))
            .transpose(0, 1)
            .repeat_interleave(heads // kv, 0)
        )
        v = (h @ w["v"].T).view(n, kv, dim).transpose(0, 1).repeat_interleave(heads // kv, 0)
        mixed = torch.softmax(q @ k.transpose(1, 2) * dim**-0.5 + hidden, -1) @ v
        x = x + mixed.transpose(0, 1).reshape(n, heads * dim) @ w["out"].T
        h = norm(x, w["norm_feed"])
        gate = h @ w["gate"].T
        x = x + (torch.nn.functional.silu(gate) * (h @ w["up"].T)) @ w["down"].T
    return norm(x, of("w.outer.norm")) @ of("w.outer.head").T


def check(shape: Shape, target: str) -> dict[str, float]:
    """Two layers against PyTorch in f64, six tokens, direct launches and replay."""
    graph = decode_graph(shape, CAPACITY, 2)
    weights = random_weights(graph, shape, CAPACITY)
    rng = np.random.default_rng(1)
    tokens = [int(t) for t in rng.integers(0, shape.vocab, 6)]
    want = reference(shape, 2, weights, tokens).cpu().numpy()
    session, _ = bound(shape, 2, weights, target)
    found: dict[str, float] = {}
    for name in ("direct", "replay"):
        session.reset()
        if name == "replay":
            session.capture("decode")
        got = np.stack([
            np.asarray(session.step("decode", tokens=np.array([t], np.int32), pos=np.int32(p)))
            for p, t in enumerate(tokens)
        ])  # fmt: skip
        found[name] = float(np.abs(got - want).max() / np.abs(want).max())
    session.close()
    torch.cuda.empty_cache()
    return found


def greedy_rate(session: Session, first: int, count: int) -> float:
    """Tokens a second with each chosen token brought to the host and given to the next step."""
    token = np.array([17], np.int32)
    start = time.perf_counter()
    for pos in range(first, first + count):
        token = np.asarray(session.step("decode", tokens=token, pos=np.int32(pos))["next"])
    return count / (time.perf_counter() - start)


def replay_us(session: Session, count: int = 60) -> float:
    """Device time of a step: replays one after another."""
    device = session.program.device
    assert device is not None
    device.synchronize()  # type: ignore[attr-defined]
    start = time.perf_counter()
    for _ in range(count):
        session.runner.run("decode")
    device.synchronize()  # type: ignore[attr-defined]
    return 1e6 * (time.perf_counter() - start) / count


class Peer:
    """Hugging Face's Llama of a shape, bf16, compiled: one greedy token a step."""

    def __init__(self, shape: Shape) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

        config = LlamaConfig(
            hidden_size=shape.width, intermediate_size=shape.ffn, num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
            head_dim=shape.head_dim, vocab_size=shape.vocab, max_position_embeddings=8192,
            tie_word_embeddings=False,
        )  # fmt: skip
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda"):
            self.model = LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
        self.cache = StaticCache(config=config, max_cache_len=CAPACITY)
        self.token = torch.tensor([[17]], device="cuda")
        self.at = torch.tensor([[0]], device="cuda")
        start = time.perf_counter()
        self.step = torch.compile(self._step, mode="reduce-overhead", fullgraph=True)
        with torch.no_grad():
            for _ in range(4):
                self._advance()
        torch.cuda.synchronize()
        self.compile_s = time.perf_counter() - start

    def _step(self, token: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        logits = self.model(
            input_ids=token, position_ids=at, past_key_values=self.cache, use_cache=True
        ).logits
        return logits[:, -1:].argmax(-1)

    def _advance(self) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        self.token = self.step(self.token, self.at).clone()
        self.at += 1

    def rate(self, count: int) -> float:
        """Tokens a second."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.no_grad():
            for _ in range(count):
                self._advance()
        torch.cuda.synchronize()
        return count / (time.perf_counter() - start)


def measure(shape: Shape, target: str, rounds: int, with_peer: bool) -> dict[str, object]:
    weights = random_weights(decode_graph(shape, CAPACITY), shape, CAPACITY)
    session, facts = bound(shape, shape.layers, weights, target, greedy=True)
    nbytes = sum(w.nbytes for n, w in weights.items() if n != "w.outer.embed")
    session.capture("decode")
    greedy_rate(session, 0, 8)
    peer, peer_rates, failed = None, list[float](), ""
    if with_peer:
        try:
            peer = Peer(shape)
        except (ImportError, RuntimeError, TypeError, ValueError, AttributeError) as e:
            failed = f"{type(e).__name__}: {e}"[:400]  # the row's result
    rates: list[float] = []
    for _ in range(rounds):
        rates.append(greedy_rate(session, 64, 64))
        if peer is not None:
            peer_rates.append(peer.rate(64))
    us = [replay_us(session) for _ in range(rounds)]
    profile = session.profile("decode", tokens=np.array([5], np.int32), pos=np.int32(128))
    middle = statistics.median(us)
    result = {
        **facts, "weight bytes read": nbytes, "bound tok/s": READ_TB_S * 1e12 / nbytes,
        "greedy tok/s": statistics.median(rates), "greedy spread": [min(rates), max(rates)],
        "device us": middle, "device spread": [min(us), max(us)],
        "device tok/s": 1e6 / middle, "device TB/s": nbytes / middle / 1e6,
        "peer tok/s": statistics.median(peer_rates) if peer_rates else failed,
        "peer spread": [min(peer_rates), max(peer_rates)] if peer_rates else [],
        "peer compile s": peer.compile_s if peer is not None else 0.0,
        "profile us": profile.us, "profile": str(profile).splitlines(),
    }  # fmt: skip
    session.close()
    torch.cuda.empty_cache()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "build/model")))
    parser.add_argument("--models", nargs="+", default=["llama-8b"], choices=SHAPES)
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--no-check", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, object] = {**machine("benchmarks.model_decode"), "date": time.strftime("%F")}
    for name in given.models:
        shape = SHAPES[name]
        if not given.no_check:
            result[f"{name} check"] = found = check(shape, given.target)
            print(f"{name}: two layers, largest difference of logits to f64: {found}", flush=True)
        report = measure(shape, given.target, given.rounds, given.peer)
        result[name] = report
        for key, value in report.items():
            if key != "profile":
                print(f"{name}: {key:<20} {value}")
        for line in report["profile"]:  # type: ignore[attr-defined]
            print(f"   {line}", flush=True)
        save(given.out / "model-decode.json", result)


if __name__ == "__main__":
    main()
