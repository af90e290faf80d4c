"""`python -m tether.config.generate`: write the shipped `schema.json` from the classes.

`--check` says whether it is current (exit 1 where it is not).
"""

from __future__ import annotations

import json
import sys

from tether.config.describe import SCHEMA, generate


def text() -> str:
    return json.dumps(generate(), indent=1, sort_keys=False, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    fresh = text()
    if arguments == ["--check"]:
        current = SCHEMA.exists() and SCHEMA.read_text(encoding="utf-8") == fresh
        if not current:
            print("schema.json is stale: run python -m tether.config.generate", file=sys.stderr)
        return 0 if current else 1
    SCHEMA.write_text(fresh, encoding="utf-8")
    print(f"wrote {SCHEMA.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
