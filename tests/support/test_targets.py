"""The plugin, run over tiny test files of its own."""

from __future__ import annotations

import pytest

from tests.support.targets import TARGETS, Targets

FILE = """
import pytest

@pytest.mark.parametrize("target", ["vulkan:0", "wgpu"])
@pytest.mark.parametrize("other", ["hip"])
def test_runs(target, other):
    if target == "wgpu":
        pytest.skip("no adapter")

@pytest.mark.amd
def test_needs_hardware():
    pass
"""


def run(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    *require: str,
    hardware: str | None = "none here",
) -> pytest.RunResult:
    monkeypatch.setattr("tests.support.targets.missing_hardware", lambda _: hardware)
    pytester.makeini("[pytest]\nmarkers =\n    cuda\n    h200\n    amd\n    quick\n")
    pytester.makepyfile(text)
    return pytester.runpytest_inprocess(plugins=[Targets(require)])


def test_a_skip_stays_a_skip_where_nothing_is_required(pytester, monkeypatch):
    result = run(pytester, monkeypatch, FILE)
    result.assert_outcomes(passed=1, skipped=2)
    assert result.ret == 0


def test_a_skip_fails_where_a_target_is_required(pytester, monkeypatch):
    result = run(pytester, monkeypatch, FILE, "vulkan")
    result.assert_outcomes(passed=1, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*POOT_REQUIRE forbids*no adapter*"])


def test_missing_hardware_fails_where_its_target_is_required(pytester, monkeypatch):
    run(pytester, monkeypatch, FILE, "hip").assert_outcomes(passed=1, failed=1, errors=1)


def test_a_skip_for_another_reason_fails_in_spite_of_a_hardware_mark(pytester, monkeypatch):
    text = "import pytest\n@pytest.mark.amd\ndef test_it():\n    pytest.skip('tired')\n"
    run(pytester, monkeypatch, text, "vulkan", hardware=None).assert_outcomes(failed=1)


def test_a_skipped_module_fails_where_a_target_is_required(pytester, monkeypatch):
    text = "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass\n"
    result = run(pytester, monkeypatch, text, "cpu")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*POOT_REQUIRE forbids*no_such_module*"])


def test_an_expected_failure_is_no_skip(pytester, monkeypatch):
    text = "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False\n"
    run(pytester, monkeypatch, text, "cpu").assert_outcomes(xfailed=1)


def test_outcomes_are_counted_by_target(pytester, monkeypatch):
    result = run(pytester, monkeypatch, FILE)
    result.stdout.fnmatch_lines(
        [
            "vulkan: 1 passed, 0 failed, 0 skipped",
            "wgpu: 0 passed, 0 failed, 1 skipped",
            "*1 passed, 2 skipped in*",
        ]
    )


def test_a_test_without_a_driver_is_quick_by_itself(pytester, monkeypatch):
    monkeypatch.setattr("tests.support.targets.missing_hardware", lambda _: None)
    pytester.makeini("[pytest]\nmarkers =\n    cuda\n    slow\n    quick\n")
    pytester.makepyfile(
        """
        import pytest

        def test_plain(): pass

        @pytest.mark.parametrize("target", ["oracle", "vulkan"])
        def test_on(target): pass

        @pytest.mark.slow
        def test_slow(): pass

        @pytest.mark.cuda
        def test_cuda(): pass
        """
    )
    result = pytester.runpytest_inprocess("-m", "quick", plugins=[Targets(())])
    result.assert_outcomes(passed=2, deselected=3)


def test_a_required_target_that_does_not_exist_is_refused():
    with pytest.raises(pytest.UsageError, match="metal"):
        Targets(("vulkan", "metal"))


def test_targets_are_named_once():
    assert len(set(TARGETS)) == len(TARGETS)
