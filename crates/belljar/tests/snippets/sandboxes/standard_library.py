# The standard library, as models use it.
# %% 29 sqlite3
import sqlite3

connection = sqlite3.connect(":memory:")
connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")
connection.executemany("INSERT INTO users (name, age) VALUES (?, ?)", [("Ann", 31), ("Bob", 25), ("Cy", 40)])
connection.commit()
for row in connection.execute("SELECT name, age FROM users WHERE age > ? ORDER BY age", (26,)):
    print(row)
print(connection.execute("SELECT AVG(age) FROM users").fetchone()[0])
#> ('Ann', 31)
#> ('Cy', 40)
#> 32.0
# %% 30 zipfile/tarfile/gzip/bz2/lzma
import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

data = b"hello " * 1000
with zipfile.ZipFile("archive.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("folder/data.txt", data)
with zipfile.ZipFile("archive.zip") as archive:
    print(archive.namelist(), archive.read("folder/data.txt") == data)
buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
    member = tarfile.TarInfo("data.txt")
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
buffer.seek(0)
with tarfile.open(fileobj=buffer) as archive:
    print(archive.getnames())
for module in (gzip, bz2, lzma):
    packed = module.compress(data)
    print(module.__name__, len(packed) < 200, module.decompress(packed) == data)
#> ['folder/data.txt'] True
#> ['data.txt']
#> gzip True True
#> bz2 True True
#> lzma True True
# %% 31 dataclasses/enum/typing
from dataclasses import asdict, dataclass, field, replace
from enum import Enum, auto
from typing import Generic, NamedTuple, Optional, Protocol, TypeVar

T = TypeVar("T")


class Color(Enum):
    RED = auto()
    BLUE = auto()


@dataclass(order=True, frozen=True)
class Item:
    price: float
    name: str = field(compare=False)
    color: Color = field(default=Color.RED, compare=False)
    tags: tuple[str, ...] = ()


class Stack(Generic[T]):
    def __init__(self) -> None:
        self._items: list[T] = []

    def push(self, item: T) -> None:
        self._items.append(item)

    def pop(self) -> Optional[T]:
        return self._items.pop() if self._items else None


class Point(NamedTuple):
    x: int
    y: int = 0


class Named(Protocol):
    name: str


items = [Item(2.5, "pen"), Item(1.0, "clip", Color.BLUE)]
print([item.name for item in sorted(items)], asdict(items[1])["color"].name)
print(replace(items[0], price=3.0).price, Point(1), Stack[int]().pop())
#> ['clip', 'pen'] BLUE
#> 3.0 Point(x=1, y=0) None
# %% 34 datetime/zoneinfo
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

meeting = datetime(2024, 7, 4, 9, 30, tzinfo=ZoneInfo("America/New_York"))
print(meeting.isoformat(), meeting.astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M %Z"))
print((meeting.astimezone(timezone.utc) + timedelta(days=200)).date())
print(datetime.strptime("2024-02-29", "%Y-%m-%d").strftime("%A, %d %B %Y"))
#> 2024-07-04T09:30:00-04:00 15:30 CEST
#> 2025-01-20
#> Thursday, 29 February 2024
# %% 36 decimal/fractions/statistics
import statistics
from decimal import ROUND_HALF_UP, Decimal, getcontext
from fractions import Fraction

getcontext().prec = 30
print(Decimal("0.1") + Decimal("0.2"), Decimal("2.675").quantize(Decimal("0.01"), ROUND_HALF_UP))
print(Decimal(2).sqrt(), Fraction(1, 3) + Fraction(1, 6))
data = [2, 4, 4, 4, 5, 5, 7, 9]
print(statistics.mean(data), statistics.median(data), statistics.pstdev(data), statistics.mode(data))
#> 0.3 2.68
#> 1.41421356237309504880168872421 1/2
#> 5 4.5 2.0 4
# %% 37 random/secrets/uuid
import random
import secrets
import uuid

random.seed(42)
print(random.randint(1, 100), random.choice("abc"), random.sample(range(10), 3))
print(len(secrets.token_hex(16)), secrets.compare_digest("a", "a"))
print(uuid.uuid4().version, uuid.uuid5(uuid.NAMESPACE_DNS, "example.com"))
#> 82 a [0, 4, 3]
#> 32 True
#> 4 cfbff0d1-9375-5685-968c-48ce8b15ae17
# %% 38 json/tomllib/csv/configparser
import configparser
import csv
import io
import json
import tomllib

print(json.dumps({"b": [1, 2.5, None, True], "a": "é"}, sort_keys=True, ensure_ascii=False))
print(tomllib.loads('[tool]\nname = "x"\nversions = [1, 2]')["tool"])
rows = list(csv.DictReader(io.StringIO("name,age\nAnn,31\n\"Bob, Jr.\",25\n")))
print(rows[1]["name"], sum(int(row["age"]) for row in rows))
parser = configparser.ConfigParser()
parser.read_string("[server]\nport = 8080\ndebug = yes")
print(parser.getint("server", "port"), parser["server"].getboolean("debug"))
#> {"a": "é", "b": [1, 2.5, null, true]}
#> {'name': 'x', 'versions': [1, 2]}
#> Bob, Jr. 56
#> 8080 True
# %% 40 logging
import logging
import sys

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s", force=True)
logger = logging.getLogger("app")
logger.debug("hidden")
logger.info("started %s", "now")
try:
    1 / 0
except ZeroDivisionError:
    logger.error("failed")
#> INFO:app:started now
#> ERROR:app:failed
# %% 41 argparse main
import argparse


def main(argv=None):
    parser = argparse.ArgumentParser(prog="greet", description="Greets people")
    parser.add_argument("names", nargs="+")
    parser.add_argument("--shout", action="store_true")
    parser.add_argument("-n", "--count", type=int, default=1)
    arguments = parser.parse_args(argv)
    for name in arguments.names:
        text = f"Hello {name}" * arguments.count
        print(text.upper() if arguments.shout else text)


if __name__ == "__main__":
    main(["Ann", "Bob", "--shout"])
#> HELLO ANN
#> HELLO BOB
# %% 42 unittest.main
import sys
import unittest


class TestStrings(unittest.TestCase):
    def test_upper(self):
        self.assertEqual("foo".upper(), "FOO")

    def test_split(self):
        with self.assertRaises(TypeError):
            "a b".split(2)


if __name__ == "__main__":
    program = unittest.main(argv=["test"], exit=False, testRunner=unittest.TextTestRunner(stream=sys.stdout, verbosity=0))
    print(program.result.wasSuccessful(), program.result.testsRun)
#> ----------------------------------------------------------------------
#> Ran 2 tests in …
#>
#> OK
#> True 2
# %% 43 doctest
import doctest


def factorial(n):
    """
    >>> factorial(5)
    120
    >>> [factorial(n) for n in range(4)]
    [1, 1, 2, 6]
    """
    return 1 if n < 2 else n * factorial(n - 1)


print(doctest.testmod())
#> TestResults(failed=0, attempted=2)
# %% 45 pathlib/tempfile/shutil/glob
import glob
import os
import shutil
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    root = Path(folder)
    (root / "a" / "b").mkdir(parents=True)
    for name in ("one.txt", "two.txt", "three.md"):
        (root / "a" / name).write_text(name)
    shutil.copyfile(root / "a" / "one.txt", root / "a" / "b" / "copy.txt")
    print(sorted(path.relative_to(root).as_posix() for path in root.rglob("*.txt")))
    print(sorted(os.path.basename(path) for path in glob.glob(f"{folder}/a/t*")))
    shutil.make_archive(str(root / "backup"), "zip", root / "a")
    shutil.rmtree(root / "a")
    print([path.name for path in root.iterdir()], (root / "backup.zip").stat().st_size > 100)
print(os.path.exists(folder))
#> ['a/b/copy.txt', 'a/one.txt', 'a/two.txt']
#> ['three.md', 'two.txt']
#> ['backup.zip'] True
#> False
# %% 51 hashlib/hmac/base64
import base64
import hashlib
import hmac

print(hashlib.sha256(b"hello").hexdigest()[:16], hashlib.md5(b"hello").hexdigest()[:8])
print(hmac.new(b"key", b"message", hashlib.sha256).hexdigest()[:16])
print(base64.b64encode(b"binary\x00data").decode(), base64.urlsafe_b64decode("_-8=").hex())
print(hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 1000).hex()[:16], hashlib.blake2b(b"x").digest_size)
#> 2cf24dba5fb0a30e 5d41402a
#> 6e9ef29b75fffc5b
#> YmluYXJ5AGRhdGE= ffef
#> 632c2812e46d4604 64
# %% 52 ctypes
import ctypes


class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_int32), ("y", ctypes.c_double)]


point = Point(3, 1.5)
numbers = (ctypes.c_int * 3)(1, 2, 3)
print(point.x, ctypes.sizeof(Point), sum(numbers), ctypes.string_at(ctypes.create_string_buffer(b"abc")))
#> 3 16 6 b'abc'
# %% 53 curses
import curses

try:
    screen = curses.initscr()
    curses.endwin()
except curses.error as error:
    print("no terminal:", error)
#wasm! curses
#native> no terminal:…
# %% 54 tkinter
import tkinter as tk

root = tk.Tk()
label = tk.Label(root, text="Hello")
label.pack()
root.mainloop()
#wasm! tkinter
#native! tkinter
# %% 55 turtle
import turtle

pen = turtle.Turtle()
for _ in range(4):
    pen.forward(100)
    pen.right(90)
turtle.done()
#wasm! turtle
#native! turtle
# %% 57 locale/unicodedata
import locale
import unicodedata

try:
    locale.setlocale(locale.LC_ALL, "en_US.UTF-8")
    print(locale.currency(1234.5, grouping=True))
except (locale.Error, ValueError):
    print(f"${1234.5:,.2f}")
print(unicodedata.name("é"), unicodedata.normalize("NFD", "é").encode(), unicodedata.category("A"))
#> $1,234.50
#> LATIN SMALL LETTER E WITH ACUTE b'e\xcc\x81' Lu
# %% 58 difflib/textwrap/itertools/heapq
import difflib
import heapq
import itertools
import textwrap

print(difflib.get_close_matches("appel", ["ape", "apple", "peach"]))
print("\n".join(difflib.unified_diff(["a", "b"], ["a", "c"], lineterm="", n=0)))
print(textwrap.fill("The quick brown fox jumps over the lazy dog", width=20))
print(heapq.nlargest(2, [5, 1, 9, 3]), list(itertools.accumulate([1, 2, 3])))
print([key for key, _ in itertools.groupby("aabbc")], len(list(itertools.permutations("abc"))))
#> ['apple', 'ape']
#> --- 
#> +++ 
#> @@ -2 +2 @@
#> -b
#> +c
#> The quick brown fox
#> jumps over the lazy
#> dog
#> [9, 5] [1, 3, 6]
#> ['a', 'b', 'c'] 6
# %% 62 os.environ/getpass/open /etc/passwd
import os

os.environ["APP_MODE"] = "test"
print(os.environ.get("APP_MODE"), os.environ.get("AWS_SECRET_ACCESS_KEY"), os.getcwd() != "")
try:
    print("root" in open("/etc/shadow").read())
except OSError as error:
    print(type(error).__name__ in ("FileNotFoundError", "PermissionError"))
#> test None True
#> True
# %% 102 pickle/shelve/dbm
import os
import pickle
import shelve


class Account:
    def __init__(self, owner, balance):
        self.owner, self.balance = owner, balance


copy = pickle.loads(pickle.dumps(Account("Ann", 10)))
print(copy.owner, copy.balance)
with shelve.open("accounts") as shelf:
    shelf["ann"] = {"balance": 10}
    shelf["bob"] = {"balance": 20}
with shelve.open("accounts") as shelf:
    print(sorted(shelf), shelf["bob"])
#wasm! dbm
#native> Ann 10
#native> ['ann', 'bob'] {'balance': 20}
# %% 33 regex/re
import re

text = "Contact: ann@example.com, bob.smith@mail.example.org; phone +1 555-0100"
print(re.findall(r"[\w.]+@[\w.]+\.\w+", text))
match = re.search(r"(?P<country>\+\d+)\s(?P<number>[\d-]+)", text)
print(match.groupdict())
print(re.sub(r"(\w+)@(\w+)", lambda found: found[1].upper() + "@" + found[2], "x@y"))
print(re.split(r"[;,]\s*", "a, b;c"), bool(re.fullmatch(r"\d{4}-\d{2}", "2024-05")))
#> ['ann@example.com', 'bob.smith@mail.example.org']
#> {'country': '+1', 'number': '555-0100'}
#> X@y
#> ['a', 'b', 'c'] True
# %% collections
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple

words = "the cat and the dog and the bird".split()
print(Counter(words).most_common(2))
groups = defaultdict(list)
for word in words:
    groups[len(word)].append(word)
print(dict(groups)[4], list(deque([1, 2, 3], maxlen=2)), ChainMap({"a": 1}, {"a": 2, "b": 3})["b"])
ordered = OrderedDict(a=1, b=2)
ordered.move_to_end("a")
print(list(ordered), namedtuple("P", "x y")(1, 2))
#> [('the', 3), ('and', 2)]
#> ['bird'] [2, 3] 3
#> ['b', 'a'] P(x=1, y=2)
# %% functools and operator
import operator
from functools import cache, partial, reduce, singledispatch, wraps


@cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def logged(function):
    @wraps(function)
    def wrapper(*arguments):
        print("call", function.__name__, arguments)
        return function(*arguments)

    return wrapper


@logged
def add(a, b):
    return a + b


@singledispatch
def describe(value):
    return "something"


@describe.register
def _(value: int):
    return "an int"


print(fibonacci(80), reduce(operator.mul, range(1, 6)), partial(pow, 2)(5))
print(add(1, 2), describe(3), describe("x"))
#> 23416728348467685 120 32
#> call add (1, 2)
#> 3 an int something
# %% itertools pipelines
from itertools import chain, combinations, count, islice, product, takewhile, zip_longest

primes = (n for n in count(2) if all(n % d for d in range(2, n)))
print(list(islice(primes, 8)))
print(list(combinations("abc", 2)), list(product([0, 1], repeat=2)))
print(list(chain.from_iterable([[1], [2, 3]])), list(takewhile(lambda n: n < 3, count())))
print(list(zip_longest("ab", [1], fillvalue="-")))
#> [2, 3, 5, 7, 11, 13, 17, 19]
#> [('a', 'b'), ('a', 'c'), ('b', 'c')] [(0, 0), (0, 1), (1, 0), (1, 1)]
#> [1, 2, 3] [0, 1, 2]
#> [('a', 1), ('b', '-')]
# %% Context managers and ExitStack
import contextlib
import io


@contextlib.contextmanager
def tag(name):
    print(f"<{name}>", end="")
    try:
        yield
    finally:
        print(f"</{name}>")


with tag("p"):
    print("text", end="")
captured = io.StringIO()
with contextlib.redirect_stdout(captured):
    print("hidden")
print(captured.getvalue().strip())
with contextlib.suppress(KeyError), contextlib.ExitStack() as stack:
    stack.callback(print, "cleaned up")
    {}["missing"]
#> <p>text</p>
#> hidden
#> cleaned up
# %% Structural pattern matching
def evaluate(expression):
    match expression:
        case int() | float():
            return expression
        case ("+", left, right):
            return evaluate(left) + evaluate(right)
        case ("*", left, right):
            return evaluate(left) * evaluate(right)
        case {"let": value, **rest}:
            return value, sorted(rest)
        case [first, *_]:
            return f"list of {first}"
        case _:
            raise ValueError(expression)


print(evaluate(("+", 1, ("*", 2, 3))), evaluate({"let": 5, "b": 1}), evaluate(["x", 1]))
#> 7 (5, ['b']) list of x
# %% Descriptors, properties and metaclasses
class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name)

    def __set__(self, instance, value):
        if value <= 0:
            raise ValueError(f"{self.name[1:]} must be positive")
        setattr(instance, self.name, value)


class Registry(type):
    classes = []

    def __new__(mcs, name, bases, namespace):
        cls = super().__new__(mcs, name, bases, namespace)
        mcs.classes.append(name)
        return cls


class Box(metaclass=Registry):
    width = Positive()

    def __init__(self, width):
        self.width = width

    @property
    def area(self):
        return self.width**2


print(Box(3).area, Registry.classes)
try:
    Box(-1)
except ValueError as error:
    print(error)
#> 9 ['Box']
#> width must be positive
# %% Exceptions with causes and groups
try:
    try:
        int("x")
    except ValueError as error:
        raise RuntimeError("bad input") from error
except RuntimeError as error:
    print(error, "<-", type(error.__cause__).__name__)

try:
    raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])
except* ValueError as group:
    print("values:", group.exceptions)
except* KeyError as group:
    print("keys:", len(group.exceptions))
#> bad input <- ValueError
#> values: (ValueError('a'),)
#> keys: 1
# %% struct, array and memoryview
import array
import struct

packed = struct.pack(">IhB", 0xDEADBEEF, -2, 7)
print(packed.hex(), struct.unpack(">IhB", packed))
numbers = array.array("d", [1.5, 2.5])
print(numbers.itemsize, sum(numbers), bytes(memoryview(b"abcdef")[::2]))
#> deadbeeffffe07 (3735928559, -2, 7)
#> 8 4.0 b'ace'
# %% XML and HTML of the standard library
import xml.etree.ElementTree as ET
from html import escape, unescape
from html.parser import HTMLParser


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.links = []

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.links.append(dict(attributes)["href"])


tree = ET.fromstring("<shop><item price='3'>pen</item><item price='5'>book</item></shop>")
print(sum(int(item.get("price")) for item in tree.iter("item")), tree.find("item").text)
parser = Links()
parser.feed('<p><a href="/a">A</a> <a href="/b">B</a></p>')
print(parser.links, escape("<b>"), unescape("&lt;&eacute;"))
#> 8 pen
#> ['/a', '/b'] &lt;b&gt; <é
# %% A class hierarchy with abstract methods
from abc import ABC, abstractmethod
from math import pi


class Shape(ABC):
    @abstractmethod
    def area(self) -> float: ...

    def __lt__(self, other):
        return self.area() < other.area()


class Circle(Shape):
    def __init__(self, radius):
        self.radius = radius

    def area(self):
        return pi * self.radius**2


class Square(Shape):
    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side**2


print([type(shape).__name__ for shape in sorted([Circle(1), Square(1), Circle(0.1)])])
try:
    Shape()
except TypeError as error:
    print("abstract" in str(error))
#> ['Circle', 'Square', 'Circle']
#> True
# %% Mocks and patches
from unittest.mock import MagicMock, patch

client = MagicMock()
client.get.return_value.json.return_value = {"ok": True}
print(client.get("/x").json(), client.get.call_count)
with patch("os.getcwd", return_value="/elsewhere"):
    import os

    print(os.getcwd())
#> {'ok': True} 1
#> /elsewhere
# %% A report of sales by category, without packages
import csv
import io
from collections import defaultdict

SALES = """date,category,amount
2024-01-05,books,12.50
2024-01-09,games,59.99
2024-02-01,books,7.25
2024-02-14,games,19.99
"""
totals = defaultdict(lambda: defaultdict(float))
for row in csv.DictReader(io.StringIO(SALES)):
    totals[row["date"][:7]][row["category"]] += float(row["amount"])
for month, categories in sorted(totals.items()):
    for category, amount in sorted(categories.items()):
        print(f"{month}  {category:<8}{amount:>8.2f}")
#> 2024-01  books      12.50
#> 2024-01  games      59.99
#> 2024-02  books       7.25
#> 2024-02  games      19.99
# %% Dijkstra with a heap
import heapq

graph = {"A": {"B": 1, "C": 4}, "B": {"C": 2, "D": 5}, "C": {"D": 1}, "D": {}}


def shortest(start):
    distances, heap = {start: 0}, [(0, start)]
    while heap:
        distance, node = heapq.heappop(heap)
        for neighbour, weight in graph[node].items():
            if distance + weight < distances.get(neighbour, float("inf")):
                distances[neighbour] = distance + weight
                heapq.heappush(heap, (distance + weight, neighbour))
    return distances


print(shortest("A"))
#> {'A': 0, 'B': 1, 'C': 3, 'D': 4}
# %% Calendars and dates
import calendar
from datetime import date, timedelta

print(calendar.monthrange(2024, 2)[1], calendar.isleap(1900), date(2024, 12, 30).isocalendar()[1])
first = date(2024, 1, 1)
print([str(first + timedelta(weeks=n)) for n in range(3)], (date(2024, 3, 1) - date(2024, 2, 1)).days)
#> 29 False 1
#> ['2024-01-01', '2024-01-08', '2024-01-15'] 29
# %% Introspection and source
import ast
import inspect


def area(width: float, height: float = 2.0) -> float:
    """Returns the area."""
    return width * height


print(inspect.signature(area), area.__doc__, inspect.getsource(area).splitlines()[0])
tree = ast.parse("x = 1 + 2")
print(ast.unparse(tree), type(tree.body[0]).__name__, ast.literal_eval("{'a': (1, 2)}"))
#> (width: float, height: float = 2.0) -> float Returns the area. def area(width: float, height: float = 2.0) -> float:
#> x = 1 + 2 Assign {'a': (1, 2)}
# %% Weak references and garbage
import gc
import weakref


class Node:
    pass


node = Node()
reference = weakref.ref(node)
node.me = node
del node
gc.collect()
print(reference() is None)
#> True
# %% string.Template, format and f-strings
from string import Template, ascii_lowercase

value, width = 1234567.891, 14
print(f"{value:,.2f}|{value:>{width}.1f}|{value!r:.9}|{0.256:.1%}|{255:#x}|{'mid':^7}|")
print(Template("$who owes $$${amount}").substitute(who="Ann", amount=5), ascii_lowercase[:3])
print("{0.real} {1[key]} {name!s}".format(3, {"key": "v"}, name="n"))
#> 1,234,567.89|     1234567.9|1234567.8|25.6%|0xff|  mid  |
#> Ann owes $5 abc
#> 3 v n
# %% Bisection, matrices and complex numbers
import cmath
import math
from bisect import bisect_left, insort

matrix = [[1, 2], [3, 4]]
print([list(row) for row in zip(*matrix)], math.prod(range(1, 8)), math.gcd(84, 36), math.isqrt(99))
numbers = [1, 3, 7]
insort(numbers, 5)
print(numbers, bisect_left(numbers, 6), cmath.sqrt(-4), math.isclose(0.1 + 0.2, 0.3))
#> [[1, 3], [2, 4]] 5040 12 9
#> [1, 3, 5, 7] 3 2j True
# %% Files of text and bytes
import json
import os

with open("data.jsonl", "w", encoding="utf-8") as file:
    for n in range(3):
        file.write(json.dumps({"n": n, "text": "é" * n}, ensure_ascii=False) + "\n")
with open("data.jsonl", encoding="utf-8") as file:
    print([json.loads(line)["text"] for line in file])
with open("data.jsonl", "rb") as file:
    file.seek(-4, os.SEEK_END)
    print(file.read(), os.path.getsize("data.jsonl"))
os.rename("data.jsonl", "renamed.jsonl")
print(os.listdir("."), os.path.splitext("a/b.tar.gz"))
#> ['', 'é', 'éé']
#> b'\xa9"}\n' 69
#> ['renamed.jsonl'] ('a/b.tar', '.gz')
