"""Filter a stream of dataclass records.

python examples/adults.py
"""

from dataclasses import dataclass

from penstock import DataStream, StreamEnvironment


@dataclass(frozen=True)
class Person:
    name: str
    age: int


PEOPLE = [Person("Fred", 35), Person("Wilma", 35), Person("Pebbles", 2), Person("Barney", 34), Person("Bamm-Bamm", 3)]


def build(env: StreamEnvironment, people: list[Person]) -> DataStream[Person]:
    return env.from_collection(people, name="people").filter(lambda person: person.age >= 18, name="adults")


def main() -> None:
    env = StreamEnvironment("adults")
    build(env, PEOPLE).print("adult")
    env.execute()


if __name__ == "__main__":
    main()
