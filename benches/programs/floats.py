"""Points normalised and compared: objects with slots, `math`."""

from math import cos, sin, sqrt


class Point:
    __slots__ = ("x", "y", "z")

    def __init__(self, i):
        self.x = x = sin(i)
        self.y = cos(i) * 3
        self.z = (x * x) / 2

    def normalize(self):
        norm = sqrt(self.x * self.x + self.y * self.y + self.z * self.z)
        self.x /= norm
        self.y /= norm
        self.z /= norm

    def maximize(self, other):
        self.x = max(self.x, other.x)
        self.y = max(self.y, other.y)
        self.z = max(self.z, other.z)
        return self


def run() -> None:
    points = [Point(i) for i in range(20_000)]
    for point in points:
        point.normalize()
    most = points[0]
    for point in points[1:]:
        most = most.maximize(point)
