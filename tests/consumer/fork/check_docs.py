"""Proves that docs/integration.md shows the lines with which the miniature tree is built.

    python check_docs.py CMakeLists.txt docs/integration.md
"""

import pathlib
import re
import sys
import textwrap


def main():
    build, page = (pathlib.Path(path).read_text() for path in sys.argv[1:])
    parts = re.findall(r"^ *# \[(\w+)\]\n(.*?)^ *# \[\1\]$", build, re.MULTILINE | re.DOTALL)
    if len(parts) != 5:
        sys.exit(f"expected five marked parts, found {[name for name, _ in parts]}")
    missing = [name for name, text in parts if textwrap.dedent(text) not in page]
    for name in missing:
        print(f"not on the page: [{name}]")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
