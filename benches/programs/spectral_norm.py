"""The norm of an infinite matrix: generator expressions and function calls with float arithmetic."""


def a(i: int, j: int) -> float:
    return 1.0 / ((i + j) * (i + j + 1) // 2 + i + 1)


def times(v: list[float]) -> list[float]:
    return [sum(a(i, j) * x for j, x in enumerate(v)) for i in range(len(v))]


def transposed_times(v: list[float]) -> list[float]:
    return [sum(a(j, i) * x for j, x in enumerate(v)) for i in range(len(v))]


def run() -> None:
    u = [1.0] * 70
    for _ in range(5):
        v = transposed_times(times(u))
        u = transposed_times(times(v))
