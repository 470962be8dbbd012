"""Running balances into a database table, one transaction an epoch."""

from __future__ import annotations

from penstock.connectors.twophase import SqliteSink
from tests.torture.jobs.arguments import arguments, finish
from tests.torture.oracle import ledger_event


def main() -> None:
    args = arguments()
    env = args.environment("ledger", max_records_per_epoch=args.size // 24)
    entries = env.from_source(args.source(ledger_event, partitions=1), name="entries")
    balances = entries.key_by(0).reduce(lambda so_far, entry: (entry[0], entry[1], so_far[2] + entry[2]), name="balance")
    balances.sink_to(SqliteSink(args.out, "balances", ("account", "n", "balance")), name="out")
    finish(env.execute())


if __name__ == "__main__":
    main()
