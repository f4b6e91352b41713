"""What CPython is recorded at: JSON there and back, with exceptions, for ever."""

import contextlib
import json

DATA = {str(n): [n, n * 1.5, "x" * (n % 17), {"a": None, "b": [True, False]}] for n in range(500)}

if __name__ == "__main__":
    print("at work", flush=True)
    while True:
        again = json.loads(json.dumps(DATA, indent=None, sort_keys=True))
        with contextlib.suppress(KeyError):
            del again["no such key"]
        with contextlib.suppress(json.JSONDecodeError):
            json.loads('{"broken": ')
