"""Options and fixtures: who runs scenarios, and with which allocator."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from harness.client import Processes  # noqa: E402


STOCK_FINDINGS = pytest.StashKey()
#: Under this name a worker process tells the first one.
TOLD = "stock_findings"


def pytest_addoption(parser):
    parser.addoption("--plugin", help="path of libnpualloc_torch_npu.so")
    parser.addoption("--probe", help="path of libnpualloc_probe.so")
    parser.addoption(
        "--subject",
        choices=["npualloc", "stock"],
        default="npualloc",
        help="allocator under test; 'stock' checks the tests themselves",
    )


@pytest.fixture(scope="session")
def processes(request, tmp_path_factory):
    """Runs scenarios with a chosen allocator."""
    plugin = request.config.getoption("--plugin")
    if request.config.getoption("--subject") == "npualloc":
        if not plugin or not pathlib.Path(plugin).is_file():
            pytest.exit(f"--plugin must name the built plug-in, not {plugin!r}", 4)
    probe = request.config.getoption("--probe")
    if not probe or not pathlib.Path(probe).is_file():
        pytest.exit(f"--probe must name the built probe, not {probe!r}", 4)
    # Scenarios' processes inherit it.
    os.environ["NPUALLOC_PROBE"] = str(pathlib.Path(probe).resolve())
    runner = Processes(tmp_path_factory.mktemp("scenarios"), plugin)
    yield runner
    runner.close()
    note_stock_findings(request.config, runner.stock_findings)
    if hasattr(request.config, "workeroutput"):
        request.config.workeroutput[TOLD] = runner.stock_findings


def note_stock_findings(config, findings):
    config.stash.setdefault(STOCK_FINDINGS, []).extend(findings)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Takes what a worker process found, where pytest-xdist runs some."""
    note_stock_findings(node.config, getattr(node, "workeroutput", {}).get(TOLD, []))


def pytest_terminal_summary(terminalreporter, config):
    """Tells what the stock allocator did to the device; that is not ours to fix."""
    findings = config.stash.get(STOCK_FINDINGS, [])
    if findings:
        terminalreporter.section("hazards and leaks of the stock allocator")
        for finding in findings:
            terminalreporter.write_line(finding)


@pytest.fixture(scope="session")
def subject(request):
    """Name of the allocator under test."""
    return request.config.getoption("--subject")


@pytest.fixture
def run(processes, subject):
    """Runs a scenario with the allocator under test."""

    def run(scenario, **options):
        return processes.run(scenario, subject, **options)

    return run


@pytest.fixture
def run_both(processes, subject):
    """Runs a scenario with the stock allocator and with the one under test."""

    def run_both(scenario, **options):
        return (
            processes.run(scenario, "stock", **options),
            processes.run(scenario, subject, **options),
        )

    return run_both
