"""Makes a script that shows a mismatch small."""


def shrink(script, shows):
    """A part of `script` of which `shows` still holds; no operation can be dropped."""
    size = max(1, len(script) // 2)
    while True:
        start, dropped = 0, False
        while start < len(script):
            part = script[:start] + script[start + size :]
            if part and shows(part):
                script, dropped = part, True
            else:
                start += size
        if size == 1 and not dropped:
            return script
        size = max(1, size // 2)
