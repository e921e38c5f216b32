"""Every function and every virtual method has a test, and the table of them is up to date."""

import pathlib
import subprocess
import sys

TABLE = pathlib.Path(__file__).parents[1] / "coverage/table.py"


def test_the_table_is_complete_and_up_to_date():
    done = subprocess.run(
        [sys.executable, str(TABLE), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
