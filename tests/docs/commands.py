"""Finds the commands of a page."""

import dataclasses
import re

_FENCE = re.compile(r"^```(\w*)\s*$")
_NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
_STATUS = re.compile(r"#\s*exit status (\d+)\s*$")
_INLINE = re.compile(r"`(cargo xtask [^`]+)`")


@dataclasses.dataclass
class Command:
    """A command, the line it is in, and the exit status it is to have."""

    line: int
    text: str
    status: int


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


def inline(page):
    """`cargo xtask` commands outside of blocks, with their lines."""
    found, inside = [], False
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            found += [(number, text) for text in _INLINE.findall(line)]
    return found
