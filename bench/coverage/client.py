"""A client of a server that the bench records: `client.py redis|memcached|nginx PORT SEED`, until it is killed.

Its requests are of many kinds, one at a time, with a pause after each: who is recorded shares a few cores with those
who record, and clients that never wait would leave these nothing.
"""

from __future__ import annotations

import http.client
import random
import socket
import sys
import time
from collections.abc import Callable
from io import BufferedRWPair

KEYS = 1000
PATHS = ("/index.html", "/small", "/moved", "/nothing", "/r/small")


def main() -> None:
    server, port, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dice = random.Random(seed)
    client, pause_s = CLIENTS[server]
    request = client(port, dice)
    while True:
        request()
        time.sleep(pause_s)


def redis(port: int, dice: random.Random) -> Callable[[], None]:
    """Strings, counters, sets, hashes, sorted sets and lists."""
    stream = connected(port)

    def command(*words: object) -> None:
        encoded = [str(word).encode() for word in words]
        parts = [b"*%d" % len(encoded), *(part for word in encoded for part in (b"$%d" % len(word), word))]
        stream.write(b"\r\n".join([*parts, b""]))
        stream.flush()
        answer = stream.readline()
        if answer.startswith(b"$") and answer != b"$-1\r\n":
            stream.read(int(answer[1:]) + 2)

    def request() -> None:
        number = dice.randrange(KEYS)
        match dice.randrange(9):
            case 0:
                command("GET", f"key:{number}")
            case 1:
                command("SET", f"key:{number}", "x" * 3)
            case 2:
                command("INCR", f"counter:{number}")
            case 3:
                command("SADD", "set", f"element:{number}")
            case 4:
                command("HSET", "hash", f"element:{number}", "x" * 3)
            case 5:
                command("ZADD", "sorted", dice.randrange(KEYS), f"element:{number}")
            case 6:
                command(dice.choice(("LPUSH", "RPUSH")), "list", "x" * 3)
            case 7:
                command(dice.choice(("LPOP", "RPOP")), "list")
            case 8:
                command("MSET", *(word for _ in range(10) for word in (f"key:{dice.randrange(KEYS)}", "xxx")))

    return request


def memcached(port: int, dice: random.Random) -> Callable[[], None]:
    """Written, read, deleted, counted, appended, and now and then asked how it is."""
    stream = connected(port)

    def command(line: bytes) -> None:
        stream.write(line)
        stream.flush()
        answer = stream.readline()
        while line.startswith((b"get", b"stats")) and answer.strip() != b"END":
            answer = stream.readline()

    def request() -> None:
        key = b"key:%d" % dice.randrange(KEYS)
        match dice.randrange(8):
            case 0 | 1:
                command(b"set %s 0 0 100\r\n%s\r\n" % (key, b"x" * 100))
            case 2 | 3 | 4:
                command(b"get %s\r\n" % key)
            case 5:
                command(b"delete %s\r\n" % key)
            case 6:
                command(b"set counter 0 0 1\r\n1\r\n")
                command(b"incr counter 3\r\n")
            case 7:
                command(b"stats items\r\n" if dice.random() < 0.05 else b"append %s 0 0 1\r\ny\r\n" % key)

    return request


def nginx(port: int, dice: random.Random) -> Callable[[], None]:
    """Small and compressed files, redirections, rewritten paths and files that are not there."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def request() -> None:
        connection.request("GET", dice.choice(PATHS), headers={"Accept-Encoding": "gzip"})
        connection.getresponse().read()

    return request


def connected(port: int) -> BufferedRWPair:
    return socket.create_connection(("127.0.0.1", port)).makefile("rwb")


# By server, and the seconds after each request.
CLIENTS: dict[str, tuple[Callable[[int, random.Random], Callable[[], None]], float]] = {
    "redis": (redis, 0.001),
    "memcached": (memcached, 0.001),
    "nginx": (nginx, 0.004),
}


if __name__ == "__main__":
    main()
