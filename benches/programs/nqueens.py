"""Eight queens: permutations, sets, generators."""

from itertools import permutations


def run() -> None:
    columns = range(8)
    solutions = sum(
        1
        for queens in permutations(columns)
        if len({queens[i] + i for i in columns}) == len({queens[i] - i for i in columns}) == 8
    )
    assert solutions == 92
