"""The commands of the documents do what the documents say: they are there, and end as told."""

import pathlib
import re
import shlex
import subprocess

import pytest

import commands

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]


#: Pages whose commands need neither the wheel nor the tool.
QUICK = ["CONTRIBUTING.md", "docs/run-without-npu.md"]


def text(page):
    return (ROOT / page).read_text(encoding="utf-8")


def to_run(blocks):
    return [c for block in blocks if block.skip is None for c in block.commands]


def script(blocks, outputs):
    """The blocks as one shell script, which stops at the first command that ends otherwise than told.

    What a command writes goes to a file in `outputs` with its line's number as name.
    """
    lines = []
    for command in to_run(blocks):
        out = shlex.quote(f"{outputs}/{command.line}")
        lines += [
            f"printf '%s\\n' {shlex.quote(f'line {command.line}: {command.text}')} >&2",
            # In this shell: later commands see what it exports.
            f"{{ {command.text}\n}} >{out}",
            "got=$?",
            f"cat {out}",
            f'[ $got -eq {command.status} ] || {{ echo "exit status $got, not {command.status}" >&2; exit 1; }}',
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", [p for p in PAGES if any(b.skip is None for b in commands.blocks(text(p)))])
def test_commands_of(page, request):
    if page not in QUICK and not request.config.getoption("--every-page"):
        pytest.skip(f"{page}: its commands are run by `cargo xtask test docs`")
    directory, environment = request.getfixturevalue("place")
    outputs = request.getfixturevalue("tmp_path_factory").mktemp("outputs")
    blocks = commands.blocks(text(page))
    done = subprocess.run(
        ["bash", "-c", script(blocks, outputs)],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{page}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
    for command in to_run(blocks):
        written = (outputs / str(command.line)).read_text(encoding="utf-8", errors="replace")
        line = commands.missing(command.output, written)
        assert line is None, f"{page}:{command.line}: {command.text}\nno line {line!r} in\n{written}"


SKIPPED = [(p, b.line, b.skip) for p in PAGES for b in commands.blocks(text(p)) if b.skip]


@pytest.mark.parametrize("page, line, reason", SKIPPED)
def test_commands_that_are_not_run(page, line, reason):
    pytest.skip(f"{page}:{line}: {reason}")


INLINE = [(p, line, command) for p in PAGES for line, command in commands.inline(text(p))]


@pytest.mark.parametrize("page, line, command", INLINE)
def test_commands_in_text_are_understood(page, line, command, request):
    # What may be left out is left out, and a number stands for any.
    words = shlex.split(re.sub(r"\[[^]]*\]", "", command))[2:]
    words = ["1" if word == "N" else word for word in words]
    if "--" in words:
        words = words[: words.index("--")]
    words = [word.replace("…", "") or "x" for word in words if word != "--help"]
    done = subprocess.run(
        [request.config.getoption("--xtask"), *words, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{page}:{line}: {command}\n{done.stderr}"


def test_what_is_found_in_a_page(tmp_path):
    page = (
        "```sh\na  # exit status 3\nb \\\n  c\n```\n<!-- not run: no device -->\n\n```console\n$ d\nout\n```\n"
        "```text\n$ no\n```\n`cargo xtask e`\n```sh\nexport F=1\n```\n"
    )
    first, second, third = commands.blocks(page)
    assert [(c.line, c.text, c.status) for c in first.commands] == [(2, "a  # exit status 3", 3), (3, "b   c", 0)]
    assert (second.line, second.skip, second.commands[0].text) == (8, "no device", "d")
    assert (first.skip, third.skip) == (None, None)
    assert (second.commands[0].output, first.commands[0].output) == (["out"], [])
    assert commands.inline(page) == [(15, "cargo xtask e")]
    blocks = commands.blocks("```sh\nexport A=5\necho $A  # five\nfalse\ntrue\n```\n")
    ran = subprocess.run(["bash", "-c", script(blocks, tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "exit status 1, not 0" in ran.stderr
    assert (tmp_path / "3").read_text() == ran.stdout == "5\n"


def test_what_a_page_shows_is_in_the_output():
    output = "begin\n┌──────┐\n│ 1.5 GiB ┆ yes │\nend 7, of 1,000 or more\n"
    assert commands.missing(["┌─┐", "│ 27 MiB   ┆ yes │", "end 8, of 2 …"], output) is None
    for shown in (["│ 1.5 GiB ┆ no │"], ["end 7, of 1,000 or more", "begin"], ["end 7, of 1,000"], ["beg"]):
        assert commands.missing(shown, output) is not None
