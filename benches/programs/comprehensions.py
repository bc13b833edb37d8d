"""List, dict and set comprehensions."""


def run() -> None:
    for _ in range(12):
        squares = [i * i for i in range(10_000) if i % 3]
        index = {value: key for key, value in enumerate(squares)}
        ends = {value % 100 for value in index if value & 1}
        rows = [[x * y for x in range(40)] for y in range(40)]
        assert len(ends) == 11 and sum(map(sum, rows)) == 608_400
