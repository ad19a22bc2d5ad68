"""What programs that try something for long have in common: a seed, a verdict, an exit status."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
from collections.abc import Callable
from typing import Any

Run = Callable[[argparse.Namespace, random.Random], list[str]]


def main(run: Run, **options: Any) -> int:
    """The command: ``options`` are its options with their defaults."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    for name, value in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    wrong = run(chosen, random.Random(chosen.seed))
    for line in wrong[:30]:
        print(f"WRONG: {line}")
    print(f"{len(wrong)} wrong")
    return 1 if wrong else 0
