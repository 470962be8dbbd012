"""A local Spark is for this machine alone: its sockets are bound to loopback, and ask for a secret.

Spark itself listens on the machine's outside address, with two ports (its RPC and its block manager) and without authentication,
even when all tasks run in the driver's JVM. Whoever set an address, by any of Spark's own ways, keeps it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from penstock.executors.spark.master import is_local

ADDRESS = "127.0.0.1"

_HOST = "spark.driver.host"
_BIND = "spark.driver.bindAddress"
_AUTHENTICATE = "spark.authenticate"


def loopback(master: str, config: Mapping[str, str], spark_home: str) -> dict[str, str]:
    """Settings for a local master that close it to other machines; of what the user has set, nothing.

    With `spark.authenticate` and no secret a local Spark makes a random one, which no command line shows.
    """
    if not is_local(master):
        return {}
    given = {*config, *machine_settings(spark_home)}
    settings = {}
    if not given & {_HOST, _BIND} and "SPARK_LOCAL_IP" not in os.environ:
        settings = {_HOST: ADDRESS, _BIND: ADDRESS}
    if _AUTHENTICATE not in given:
        settings[_AUTHENTICATE] = "true"
    return settings


def machine_settings(spark_home: str) -> set[str]:
    """What the machine's `spark-defaults.conf` sets. Keys end at a space, `=` or `:`."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(spark_home, "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {re.split(r"[\s=:]", line.strip(), maxsplit=1)[0] for line in lines if not line.lstrip().startswith(("#", "!"))}
