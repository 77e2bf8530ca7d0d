"""What may not stand in the code, whoever wrote it."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.sources import ROOT, Source, sources

MARKERS = re.compile(rf"\b({'|'.join(('TO' + 'DO', 'FIX' + 'ME', 'X' * 3))})\b")
UNSAFE_MODULES = ("pickle", "cPickle", "dill", "marshal", "shelve", "cloudpickle")
UNSAFE_CALLS = ("eval", "exec", "__import__")


def unfinished(path: str, text: str) -> list[str]:
    rows = enumerate(text.splitlines(), 1)
    return [f"{path}:{n}" for n, line in rows if MARKERS.search(line)]


def unsafe(source: Source) -> list[str]:
    """Lines that unpickle, or run text as code."""
    bad: list[int] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")[0]]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names = [node.func.id] if node.func.id in UNSAFE_CALLS else []
            bad += [node.lineno] * len(names)
            continue
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            is_off = isinstance(node.value, ast.Constant) and node.value.value is False
            bad += [] if is_off else [node.value.lineno]
            continue
        else:
            continue
        bad += [node.lineno for name in names if name in UNSAFE_MODULES]
    return [f"{source.path}:{n}" for n in bad]


# An engine serves many: what one request meets is handed to that request, whatever it is.
HANDS_ON = tuple(f"src/poot/llm/{name}.py" for name in ("engine", "stepper", "job", "request"))


def catches_all(source: Source) -> list[str]:
    """Handlers of everything that don't raise again, nor, where that is allowed, hand the error
    on by its name."""
    bad: list[str] = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        named = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = [getattr(n, "id", "") for n in named]
        wide = node.type is None or "Exception" in names or "BaseException" in names
        raises = any(isinstance(n, ast.Raise) for n in ast.walk(node))
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if source.path in HANDS_ON and node.name in used:
            continue
        if wide and (node.type is None or not raises):
            bad.append(f"{source.path}:{node.lineno}")
    return bad


def reads_environment(source: Source) -> list[str]:
    names = ("environ", "environb", "getenv", "putenv")
    return [
        f"{source.path}:{node.lineno}"
        for node in ast.walk(source.tree)
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.ImportFrom) and any(a.name in names for a in node.names))
    ]


def test_nothing_is_left_for_later():
    texts = {s.path: s.text for s in sources()}
    for pattern in ("docs/**/*.md", "*.md", "scripts/*", ".ci/*", "tests/*.md"):
        files = (p for p in ROOT.glob(pattern) if p.is_file())
        texts |= {str(p.relative_to(ROOT)): p.read_text() for p in files}
    assert [row for path, text in sorted(texts.items()) for row in unfinished(path, text)] == []


def test_nothing_is_unpickled_or_run_from_text():
    assert [row for s in sources() for row in unsafe(s)] == []


def test_no_handler_swallows_everything():
    assert [row for s in sources() for row in catches_all(s)] == []


def test_only_knobs_reads_the_environment():
    files = [s for s in sources("src") if s.module != "poot.knobs"]
    assert [row for s in files for row in reads_environment(s)] == []


def test_no_function_rebinds_a_global():
    bad = [
        f"{s.path}:{node.lineno}"
        for s in sources("src")
        for node in ast.walk(s.tree)
        if isinstance(node, ast.Global)
    ]
    assert bad == []


@pytest.mark.parametrize(
    "check, text",
    [
        (unsafe, "import pickle"),
        (unsafe, "from marshal import loads"),
        (unsafe, "eval('1')"),
        (unsafe, "np.load(f, allow_pickle=True)"),
        (catches_all, "try:\n    f()\nexcept:\n    raise"),
        (catches_all, "try:\n    f()\nexcept (OSError, Exception):\n    pass"),
        (reads_environment, "import os\nos.environ['A']"),
        (reads_environment, "from os import getenv"),
        (lambda s: unfinished(s.path, s.text), "# TO" + "DO: later"),
    ],
)
def test_each_check_finds_what_it_is_for(check, text):
    assert len(check(Source("x.py", "poot.x", text, ast.parse(text)))) == 1


@pytest.mark.parametrize(
    "check, text",
    [
        (unsafe, "np.load(f, allow_pickle=False)"),
        (unsafe, "device.exec()"),
        (catches_all, "try:\n    f()\nexcept Exception as e:\n    raise LaunchError('x') from e"),
        (catches_all, "try:\n    f()\nexcept OSError:\n    pass"),
    ],
)
def test_no_check_finds_what_is_allowed(check, text):
    assert check(Source("x.py", "poot.x", text, ast.parse(text))) == []
