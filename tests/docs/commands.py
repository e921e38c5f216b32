"""Finds the commands of a page."""

import dataclasses
import re

_FENCE = re.compile(r"^```(\w*)\s*$")
_NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
_STATUS = re.compile(r"#\s*exit status (\d+)\s*$")
_INLINE = re.compile(r"`(cargo xtask [^`]+)`")


@dataclasses.dataclass
class Command:
    """A command, the line it is in, the exit status it is to have, and what the page shows of its output."""

    line: int
    text: str
    status: int
    output: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Block:
    """Commands of one block; `skip` says why they are not run."""

    line: int
    commands: list
    skip: str | None


def blocks(page):
    """The blocks of commands of a page, in order."""
    found, language, reason, lines = [], None, None, []
    for number, line in enumerate(page.splitlines(), 1):
        fence = _FENCE.match(line)
        if language is None:
            if fence:
                language, lines, begin = fence[1], [], number
            elif line.strip():
                note = _NOT_RUN.match(line)
                reason = note[1] if note else None
        elif fence:
            if language in ("sh", "console"):
                found.append(Block(begin, _commands(lines, language), reason))
            language, reason = None, None
        else:
            lines.append((number, line))
    return found


def _commands(lines, language):
    found, open_text = [], None
    for number, line in lines:
        if open_text is None:
            if language == "console":
                if not line.startswith("$ "):
                    if found and line.strip():
                        found[-1].output.append(line)
                    continue
                line = line[2:]
            if not line.strip() or line.startswith("#"):
                continue
            begin, open_text = number, ""
        if line.endswith("\\"):
            open_text += line[:-1]
            continue
        text = open_text + line
        status = _STATUS.search(text)
        found.append(Command(begin, text, int(status[1]) if status else 0))
        open_text = None
    return found


def shape(line):
    """A line without its figures and without how wide they are."""
    line = re.sub(r"\d[\d.,]*( ?([KMGT]i)?B\b)?", "N", line)
    return re.sub(r"[─═ ]+", " ", line).strip()


def missing(shown, output):
    """The first line of `shown` that does not come in `output` behind the ones before it; None when all do.

    Figures may differ; what follows … is not compared.
    """
    rest = iter(shape(line) for line in output.splitlines())
    for line in shown:
        begin, cut, _ = line.partition("…")
        wanted = shape(begin)
        if not any(one.startswith(wanted) if cut else one == wanted for one in rest):
            return line
    return None


def inline(page):
    """`cargo xtask` commands outside of blocks, with their lines."""
    found, inside = [], False
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            found += [(number, text) for text in _INLINE.findall(line)]
    return found
