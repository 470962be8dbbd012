"""Rules that change while the job runs: broadcast state, which is the same in all partitions.

Payments are kept by customer, rules reach every partition. A rule says how much a customer may spend with one kind of shop; when
it is tightened, those who are above it already are told at once.

python examples/changing_rules.py
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock import CollectionSource, DataStream, KeyedContext, MapState, StreamEnvironment, Watermarks
from penstock.contexts import KeyedBroadcastContext
from penstock.functions import KeyedBroadcastProcessFunction
from penstock.state import BroadcastMapState


@dataclass(frozen=True)
class Payment:
    time: int
    customer: str
    shop: str
    euros: int


@dataclass(frozen=True)
class Rule:
    """From now on, at most so much with shops of this kind; None: as much as they like. Without a shop it only says the time: a
    control stream that is quiet has to say that it is still quiet, for the time of its records is not known before."""

    time: int
    shop: str = ""
    most: int | None = None


class Limits(KeyedBroadcastProcessFunction[str, Payment, Rule, str]):
    limits: BroadcastMapState[str, int] = BroadcastMapState(str, int)
    spent: MapState[str, int] = MapState(str, int)

    def process(self, value: Payment, ctx: KeyedContext[str]) -> Iterator[str]:
        before = self.spent.get(value.shop) or 0
        self.spent[value.shop] = before + value.euros
        most = self.limits.get(value.shop)
        if most is not None and before <= most < before + value.euros:
            yield f"{ctx.key} is above {most} EUR for {value.shop}, with a payment of {value.euros} EUR"

    def process_broadcast(self, value: Rule, ctx: KeyedBroadcastContext[str]) -> Iterator[str]:
        if value.most is None:
            self.limits.remove(value.shop)
            return
        self.limits[value.shop] = most = value.most
        above: list[str] = []

        def check(customer: str, spent: MapState[str, int]) -> None:
            if (spent.get(value.shop) or 0) > most:
                above.append(customer)

        ctx.apply_to_keyed_state(self.spent, check)
        yield from (f"{customer} is above {most} EUR for {value.shop}, by a new rule" for customer in above)


def build(env: StreamEnvironment, payments: list[Payment], rules: list[Rule]) -> DataStream[str]:
    watermarks: Watermarks[Payment | Rule] = Watermarks.bounded(seconds=1, timestamp=lambda one: one.time)
    control: DataStream[Rule] = env.from_source(CollectionSource(rules), watermarks=watermarks, name="rules")
    paid: DataStream[Payment] = env.from_source(CollectionSource(payments), watermarks=watermarks, name="payments")
    return paid.key_by(lambda payment: payment.customer).connect(control.broadcast()).process(Limits(), name="limits")


def payments() -> list[Payment]:
    """A payment every second, of three customers in turn with two kinds of shop."""
    customers, shops = ("ann", "bob", "cid"), ("games", "books")
    return [Payment(1000 * n, customers[n % 3], shops[n // 3 % 2], 10 + n % 7) for n in range(60)]


def rules() -> list[Rule]:
    """Now and then one, and every second that there is none."""
    given = {0: ("games", 100), 20: ("books", 40), 30: ("games", None), 45: ("games", 110)}
    return [Rule(1000 * second + 500, *given.get(second, ())) for second in range(60)]


def main() -> None:
    env = StreamEnvironment("changing-rules")
    for alert in sorted(build(env, payments(), rules()).execute_and_collect()):
        print(alert)


if __name__ == "__main__":
    main()
