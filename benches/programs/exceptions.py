"""Exceptions raised, caught, chained, and passed through frames."""


class Refused(Exception):
    pass


def check(value: int, depth: int) -> int:
    if depth:
        return check(value, depth - 1)
    if value % 2:
        raise Refused(value)
    return value


def run() -> None:
    refused = 0
    for i in range(12_000):
        try:
            try:
                check(i, 3)
            except Refused as error:
                raise ValueError(i) from error
        except ValueError:
            refused += 1
        finally:
            i += 1
    assert refused == 6000
