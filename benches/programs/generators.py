"""Generators inside generators: a binary tree walked with `yield from`."""


class Node:
    def __init__(self, left, value, right):
        self.left, self.value, self.right = left, value, right

    def __iter__(self):
        if self.left:
            yield from self.left
        yield self.value
        if self.right:
            yield from self.right


def tree(values: range) -> Node | None:
    if not values:
        return None
    middle = len(values) // 2
    return Node(tree(values[:middle]), values[middle], tree(values[middle + 1 :]))


def run() -> None:
    root = tree(range(10_000))
    for _ in range(3):
        assert sum(root) == 49_995_000
