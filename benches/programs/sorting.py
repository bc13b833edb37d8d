"""`sorted` with and without keys, and a merge sort in Python."""


def numbers(count: int) -> list[int]:
    value, result = 42, []
    for _ in range(count):
        value = (value * 1103515245 + 12345) % 2147483648
        result.append(value)
    return result


def merge_sort(values: list[int]) -> list[int]:
    if len(values) < 2:
        return values
    middle = len(values) // 2
    left, right, merged = merge_sort(values[:middle]), merge_sort(values[middle:]), []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
    return merged + left[i:] + right[j:]


def run() -> None:
    values = numbers(12_000)
    assert merge_sort(values) == sorted(values)
    sorted(values, key=lambda value: (value % 10, -value))
    sorted(map(str, values))
