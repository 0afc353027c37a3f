"""Agents that kill themselves the moment their answer ends: a process each, forked from one small process.

    python dying_agents.py < order.json

The order: ``port``, and ``calls``: a list of ``[path, body, mark]``. Each agent sends its call and dies of SIGKILL when
the mark is in what it has read. Writes how many died so.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def be_agent(port: int, path: str, body: str, mark: str) -> None:
    """Call, read to the mark, die."""
    connection = socket.create_connection(("127.0.0.1", port))
    head = f"POST {path} HTTP/1.1\r\nhost: proxy\r\ncontent-type: application/json\r\n"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
    read = b""
    while data := connection.recv(65536):
        read += data
        if mark.encode() in read:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Fork the agents and wait for all of them."""
    order = json.load(sys.stdin)
    agents: list[int] = []
    for path, body, mark in order["calls"]:
        pid = os.fork()
        if pid == 0:
            be_agent(order["port"], path, body, mark)
            os._exit(1)
        agents.append(pid)
    died = [os.WTERMSIG(status) == signal.SIGKILL for _, status in (os.waitpid(pid, 0) for pid in agents)]
    sys.stdout.write(str(sum(died)))


if __name__ == "__main__":
    main()
