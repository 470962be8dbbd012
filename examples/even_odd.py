"""Split a stream and select its parts.

python examples/even_odd.py
"""

from penstock import StreamEnvironment
from penstock.api import SplitStream


def parity(n: int) -> str:
    return "even" if n % 2 == 0 else "odd"


def build(env: StreamEnvironment, upto: int) -> SplitStream[int]:
    return env.from_collection(range(upto), name="numbers").split(parity, name="parity")


def main() -> None:
    env = StreamEnvironment("even-odd")
    parts = build(env, 10)
    parts.select("even").print("even")
    parts.select("odd").map(lambda n: n * n, name="squares").print("odd, squared")
    parts.select("even", "odd").key_by(parity).max(name="greatest").filter(lambda n: n >= 8).print("greatest")
    env.execute()


if __name__ == "__main__":
    main()
