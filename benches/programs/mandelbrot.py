"""A small Mandelbrot set: complex numbers in tight loops."""


def run() -> None:
    inside = 0
    for row in range(60):
        for column in range(60):
            c = complex(column / 20 - 2, row / 20 - 1.5)
            z = 0j
            for _ in range(50):
                z = z * z + c
                if abs(z) > 2:
                    break
            else:
                inside += 1
    assert 500 < inside < 1200
