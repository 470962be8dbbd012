"""A keyed process function with state: a summary for every third purchase of a customer.

python examples/keyed_counter.py
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock import DataStream, KeyedContext, KeyedProcessFunction, MapState, StreamEnvironment, ValueState


@dataclass(frozen=True)
class Purchase:
    customer: str
    article: str
    cents: int


@dataclass(frozen=True)
class Summary:
    customer: str
    purchases: int
    cents: int
    favourite: str


class EveryThird(KeyedProcessFunction[str, Purchase, Summary]):
    # Declared on the class: each key has its own values, kept with the job and restored with it.
    purchases = ValueState(int, default=0)
    cents = ValueState(int, default=0)
    articles: MapState[str, int] = MapState(str, int)

    def process(self, value: Purchase, ctx: KeyedContext[str]) -> Iterator[Summary]:
        self.purchases.update(self.purchases.value + 1)
        self.cents.update(self.cents.value + value.cents)
        self.articles[value.article] = (self.articles.get(value.article) or 0) + 1
        if self.purchases.value % 3 == 0:
            favourite = max(sorted(self.articles.items()), key=lambda item: item[1])[0]
            yield Summary(ctx.key, self.purchases.value, self.cents.value, favourite)


PURCHASES = [
    Purchase("ann", "tea", 350),
    Purchase("bob", "bread", 420),
    Purchase("ann", "bread", 420),
    Purchase("ann", "tea", 350),
    Purchase("bob", "tea", 350),
    Purchase("ann", "milk", 120),
    Purchase("bob", "bread", 420),
]


def build(env: StreamEnvironment, purchases: list[Purchase]) -> DataStream[Summary]:
    return env.from_collection(purchases, name="purchases").key_by("customer").process(EveryThird(), name="every-third")


def main() -> None:
    env = StreamEnvironment("keyed-counter")
    for summary in sorted(build(env, PURCHASES).execute_and_collect(), key=lambda found: found.customer):
        print(summary)


if __name__ == "__main__":
    main()
