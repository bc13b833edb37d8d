# Packages that are installed for the program.
# %% 32 pydantic
from pydantic import BaseModel, Field, ValidationError, field_validator


class User(BaseModel):
    name: str
    age: int = Field(ge=0)
    tags: list[str] = []

    @field_validator("name")
    @classmethod
    def strip(cls, value: str) -> str:
        return value.strip()


print(User(name=" Ann ", age="31").model_dump_json())
try:
    User(name="Bob", age=-1)
except ValidationError as error:
    print(error.error_count(), error.errors()[0]["type"])
#> {"name":"Ann","age":31,"tags":[]}
#> 1 greater_than_equal
# %% 35 pytz/dateutil
from datetime import datetime

import pytz
from dateutil.parser import parse
from dateutil.relativedelta import relativedelta

print(pytz.timezone("Asia/Tokyo").localize(datetime(2024, 1, 1)).isoformat())
print(parse("Jan 5 2024 3pm"), datetime(2024, 1, 31) + relativedelta(months=1))
#> 2024-01-01T00:00:00+09:00
#> 2024-01-05 15:00:00 2024-02-29 00:00:00
# %% 39 yaml
import yaml

config = yaml.safe_load("server:\n  port: 8080\n  hosts: [a, b]\n")
config["server"]["debug"] = True
print(yaml.safe_dump(config, sort_keys=True))
#> server:
#>   debug: true
#>   hosts:
#>   - a
#>   - b
#>   port: 8080
#>
# %% 44 pytest.main
from pathlib import Path

import pytest

Path("test_sample.py").write_text(
    "import pytest\n\n@pytest.mark.parametrize('a, b', [(1, 1), (2, 4)])\ndef test_square(a, b):\n    assert a * a == b\n"
)
print("exit code:", int(pytest.main(["-q", "-p", "no:cacheprovider", "test_sample.py"])))
#> ..                                                                       [100%]
#> 2 passed in …
#> exit code: 0
# %% 49 flask test_client
from flask import Flask, jsonify, request

app = Flask(__name__)


@app.post("/sum")
def add():
    return jsonify(total=sum(request.get_json()["numbers"]))


response = app.test_client().post("/sum", json={"numbers": [1, 2, 3]})
print(response.status_code, response.get_json())
#> 200 {'total': 6}
# %% 50 fastapi TestClient
# /// script
# dependencies = ["fastapi", "httpx", "httpx2"]
# ///
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel

app = FastAPI()


class Item(BaseModel):
    name: str
    price: float


@app.post("/items/{number}")
async def create(number: int, item: Item):
    return {"number": number, "total": item.price * 2}


client = TestClient(app)
response = client.post("/items/3", json={"name": "pen", "price": 2})
print(response.status_code, response.json())
print(client.post("/items/x", json={}).status_code)
#wasm! This portal is not running
#native> 200 {'number': 3, 'total': 4.0}
#native> 422
# %% The schema of a FastAPI application
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI(title="Shop")


class Item(BaseModel):
    name: str
    price: float = 1.0


@app.get("/items/{number}")
async def read(number: int) -> Item:
    return Item(name=str(number))


schema = app.openapi()
print(schema["info"]["title"], sorted(schema["paths"]), Item(name="pen").model_dump())
#> Shop ['/items/{number}'] {'name': 'pen', 'price': 1.0}
# %% 56 pygame
# needs wasm: pyodide-cdn
import os

os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "1"
import pygame

pygame.init()
screen = pygame.display.set_mode((100, 80))
pygame.draw.circle(screen, (255, 0, 0), (50, 40), 20)
print(tuple(screen.get_at((50, 40)))[:3], pygame.Rect(0, 0, 10, 10).colliderect((5, 5, 10, 10)))
pygame.quit()
#> …(255, 0, 0) True
# %% 61 resource/psutil
import resource

import psutil

print(psutil.cpu_count() >= 1, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0)
#wasm! psutil
#native> True True
# %% 65 openpyxl
from openpyxl import Workbook, load_workbook
from openpyxl.styles import Font

book = Workbook()
sheet = book.active
sheet.append(["item", "price"])
sheet.append(["pen", 2.5])
sheet["A1"].font = Font(bold=True)
sheet["B3"] = "=SUM(B2:B2)"
book.save("book.xlsx")
print([[cell.value for cell in row] for row in load_workbook("book.xlsx").active.iter_rows()])
#> [['item', 'price'], ['pen', 2.5], [None, '=SUM(B2:B2)']]
# %% 66 reportlab
# needs wasm: pyodide-cdn
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen import canvas

page = canvas.Canvas("report.pdf", pagesize=A4)
page.drawString(72, 720, "Quarterly report")
page.save()
print(open("report.pdf", "rb").read(5))
#> b'%PDF-'
# %% 67 python-docx
# needs wasm: pyodide-cdn
from docx import Document

document = Document()
document.add_heading("Title", 1)
document.add_paragraph("Some text")
document.save("letter.docx")
print([paragraph.text for paragraph in Document("letter.docx").paragraphs])
#> ['Title', 'Some text']
# %% 68 python-pptx
# needs wasm: pyodide-cdn
from pptx import Presentation

deck = Presentation()
slide = deck.slides.add_slide(deck.slide_layouts[0])
slide.shapes.title.text = "Hello"
deck.save("deck.pptx")
print(len(Presentation("deck.pptx").slides), slide.shapes.title.text)
#> 1 Hello
# %% 69 pypdf
from pypdf import PdfReader, PdfWriter

writer = PdfWriter()
writer.add_blank_page(width=200, height=100)
writer.add_metadata({"/Title": "Empty"})
writer.write("empty.pdf")
reader = PdfReader("empty.pdf")
print(len(reader.pages), reader.metadata.title, float(reader.pages[0].mediabox.width))
#> 1 Empty 200.0
# %% 70 bs4 html.parser
from bs4 import BeautifulSoup

html = "<html><body><ul id='l'><li class='a'>One</li><li>Two</li></ul><a href='/x'>X</a></body></html>"
soup = BeautifulSoup(html, "html.parser")
print([item.get_text() for item in soup.select("#l li")], soup.a["href"], soup.find("li", class_="a").text)
#> ['One', 'Two'] /x One
# %% 71 bs4+lxml
# needs wasm: pyodide-cdn
from bs4 import BeautifulSoup
from lxml import etree

soup = BeautifulSoup("<p>Hello<b>World", "lxml")
tree = etree.fromstring("<r><i n='1'/><i n='2'/></r>")
print(soup.b.text, tree.xpath("sum(//i/@n)"))
#> World 3.0
# %% 72 nltk
# needs wasm: pyodide-cdn
from nltk.stem import PorterStemmer
from nltk.tokenize import RegexpTokenizer
from nltk.util import ngrams

words = RegexpTokenizer(r"\w+").tokenize("The runners were running quickly")
print([PorterStemmer().stem(word) for word in words], list(ngrams(words, 2))[0])
#> ['the', 'runner', 'were', 'run', 'quickli'] ('The', 'runners')
# %% 74 tabulate/rich/tqdm
import sys

from rich.console import Console
from rich.table import Table
from tabulate import tabulate
from tqdm import tqdm

print(tabulate([["pen", 2.5]], headers=["item", "price"], tablefmt="github"))
table = Table("name", "n")
table.add_row("a", "1")
Console(width=30, file=sys.stdout).print(table)
print(sum(tqdm(range(5), file=sys.stdout, disable=True)))
#> | item   |   price |
#> |--------|---------|
#> | pen    |     2.5 |
#> ┏━━━━━━┳━━━┓
#> ┃ name ┃ n ┃
#> ┡━━━━━━╇━━━┩
#> │ a    │ 1 │
#> └──────┴───┘
#> 10
# %% 75 faker/jinja2/markdown
import markdown
from faker import Faker
from jinja2 import Template

Faker.seed(1)
print("@" in Faker().email())
print(Template("{% for n in names %}- {{ n | upper }}\n{% endfor %}").render(names=["a", "b"]))
print(markdown.markdown("# Title\n\n*text*"))
#> True
#> - A
#> - B
#>
#> <h1>Title</h1>
#> <p><em>text</em></p>
# %% 76 cryptography
# needs wasm: pyodide-cdn
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import hashes

fernet = Fernet(Fernet.generate_key())
print(fernet.decrypt(fernet.encrypt(b"secret")))
digest = hashes.Hash(hashes.SHA256())
digest.update(b"hello")
print(digest.finalize().hex()[:8])
#> b'secret'
#> 2cf24dba
# %% 79 sqlalchemy sqlite
from sqlalchemy import Column, Integer, String, create_engine, select
from sqlalchemy.orm import Session, declarative_base

Base = declarative_base()


class User(Base):
    __tablename__ = "users"
    id = Column(Integer, primary_key=True)
    name = Column(String)


engine = create_engine("sqlite:///:memory:")
Base.metadata.create_all(engine)
with Session(engine) as session:
    session.add_all([User(name="Ann"), User(name="Bob")])
    session.commit()
    print(session.scalars(select(User.name).order_by(User.name.desc())).all())
#> ['Bob', 'Ann']
# %% 83 langchain
from langchain_core.prompts import ChatPromptTemplate

prompt = ChatPromptTemplate.from_messages([("system", "You are {role}."), ("human", "{question}")])
messages = prompt.format_messages(role="a poet", question="Why?")
print([message.content for message in messages])
#wasm! langchain
#native> ['You are a poet.', 'Why?']
# %% 93 !pip install
!pip install cowsay
import cowsay

print(cowsay.get_output_string("cow", "moo").count("moo"))
#> …
#> 1
# %% 94 subprocess pip install
import subprocess
import sys

subprocess.check_call([sys.executable, "-m", "pip", "install", "--quiet", "humanize"])
import humanize

print(humanize.intcomma(1234567), humanize.naturalsize(3_000_000))
#> …1,234,567 3.0 MB
# %% 104 mypy/black/ast
import ast

import black

source = "x = {  'a':1 }\nprint( x )\n"
print(black.format_str(source, mode=black.Mode()))
print([node.func.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)])
#> x = {"a": 1}
#> print(x)
#>
#> ['print']
# %% A micro-framework's request with starlette
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("hi"))])
print([route.path for route in app.routes])
#> ['/']
# %% attrs and structured data
import attrs


@attrs.define
class Point:
    x: int = attrs.field(validator=attrs.validators.instance_of(int))
    y: int = 0


print(Point(1, 2), attrs.asdict(attrs.evolve(Point(1), y=5)))
#> Point(x=1, y=2) {'x': 1, 'y': 5}
# %% click's command line
import click
from click.testing import CliRunner


@click.command()
@click.option("--count", default=1)
@click.argument("name")
def hello(count, name):
    for _ in range(count):
        click.echo(f"Hello {name}")


print(CliRunner().invoke(hello, ["--count", "2", "Ann"]).output)
#> Hello Ann
#> Hello Ann
#>
# %% JSON Schema
from jsonschema import Draft202012Validator

schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
print([error.message for error in Draft202012Validator(schema).iter_errors({"n": "x"})])
#wasm! jsonschema
#native> ["'x' is not of type 'integer'"]
# %% Inline metadata of a script
# /// script
# requires-python = ">=3.10"
# dependencies = ["toolz<2"]
# ///
from toolz import groupby, pipe

print(groupby(len, ["a", "bb", "cc"]), pipe(3, lambda n: n + 1, str))
#> {1: ['a'], 2: ['bb', 'cc']} 4
