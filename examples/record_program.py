"""Another system asks permille to record a program, follows it, and prints what has been seen: an external caller.

python examples/record_program.py ADDRESS PROCESS_NAME [CA CERT KEY]
"""

from __future__ import annotations

import sys

from permille.client import Client, PermilleError, wish


def main(address: str, process_name: str, ca: str = "", cert: str = "", key: str = "") -> None:
    """Records half a second of every process of this name."""
    with Client(address, ca=ca, cert=cert, key=key) as client:
        wanted = wish(process_name=process_name, purpose="anomaly", period_ms=500)
        print(f"expecting {client.plan(wanted).expected_bytes / 1e6:.1f} MB of trace")
        operation = client.start(wanted)
        try:
            result = client.wait(operation, progress=lambda now: print(f"{operation.name}: {now.stage}"))
        except KeyboardInterrupt:
            client.cancel(operation.name)
            raise
        seen = client.coverage(operation=operation.name, functions=5)
        for function in seen.functions:
            print(f"{function.share:6.1%} {function.name}")
        print("look into it: permille report", *result.sessions)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 6):
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except PermilleError as error:
        sys.exit(f"{error.reason}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"a certificate cannot be read: {error}")
