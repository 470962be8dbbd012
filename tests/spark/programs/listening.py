"""A job on a local Spark that looks, while it runs, at what its processes listen on: `listening.py FOLDER`."""

from __future__ import annotations

import ipaddress
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark import SparkContext

from penstock import EpochRecord
from tests.laws.trying import program
from tests.torture.processes import of_session

LISTENS, UNCONNECTED = "0A", "07"


def main() -> None:
    os.environ.pop("SPARK_LOCAL_IP", None)
    folder = Path(sys.argv[1])
    told = False

    def tell(record: EpochRecord) -> None:
        nonlocal told
        context = SparkContext._active_spark_context
        if record.records_in and not told and context is not None:
            told = True
            processes = of_session(os.getsid(0))
            found = {
                "listening": [[process.command[:200], *one] for process in processes for one in listening(process.pid)],
                "java": sum(process.is_driver_jvm for process in processes),
                "workers": sum(process.is_python_worker for process in processes),
                "authenticated": context.getConf().get("spark.authenticate"),
            }
            print(json.dumps(found), flush=True)

    program(folder, executor="spark", master="local[2,4]").execute(listener=tell)


def listening(pid: int) -> Iterator[tuple[str, str, int]]:
    """The TCP and UDP sockets that a process waits at: protocol, address, port. Unix sockets are not among them."""
    inodes = set()
    for handle in os.scandir(f"/proc/{pid}/fd"):
        try:
            inodes.add(os.readlink(handle.path))
        except FileNotFoundError:
            continue
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{protocol}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == (LISTENS if protocol.startswith("tcp") else UNCONNECTED) and f"socket:[{fields[9]}]" in inodes:
                address, _, port = fields[1].partition(":")
                yield protocol, str(_address(address)), int(port, 16)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """As the kernel writes it: words of four bytes in the machine's order."""
    data = b"".join(int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8))
    address = ipaddress.ip_address(data)
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


if __name__ == "__main__":
    main()
