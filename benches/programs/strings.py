"""Building, formatting, splitting and joining text."""


def run() -> None:
    lines = []
    for i in range(12_000):
        lines.append(f"{i:06d} {i * 3.5:.2f} {'even' if i % 2 == 0 else 'odd'}".replace("0", "o").title())
    text = "\n".join(lines)
    words = [word.strip().lower() for line in text.splitlines() for word in line.split(" ")]
    assert len(words) == 36_000
