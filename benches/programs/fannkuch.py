"""Pancake flipping over all permutations: list slices and integer indexing."""


def run() -> None:
    assert fannkuch(8) == (1616, 22)


def fannkuch(n: int) -> tuple[int, int]:
    permutation, count = list(range(n)), list(range(1, n + 1))
    checksum = most = parity = 0
    while True:
        first = permutation[0]
        if first:
            flips, work = 0, permutation[:]
            while first := work[0]:
                work[: first + 1] = work[first::-1]
                flips += 1
            most = max(most, flips)
            checksum += -flips if parity else flips
        parity ^= 1
        for r in range(1, n):
            permutation[: r + 1] = permutation[1 : r + 1] + permutation[:1]
            count[r] -= 1
            if count[r] > 0:
                break
            count[r] = r + 1
        else:
            return checksum, most
