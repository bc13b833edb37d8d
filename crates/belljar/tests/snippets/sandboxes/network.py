# Programs that use the network, which neither sandbox has: the error says so, whatever library hides it.
# %% 1 requests GET
import requests

try:
    response = requests.get("https://api.github.com/repos/python/cpython", timeout=10)
    response.raise_for_status()
    print(response.json()["stargazers_count"])
except requests.exceptions.RequestException as error:
    print("Request failed:", "this sandbox has no network access" in str(error))
#> Request failed: True
# %% 2 httpx async
import asyncio

import httpx


async def main():
    async with httpx.AsyncClient(timeout=10) as client:
        response = await client.get("https://httpbin.org/get")
        print(response.status_code)


asyncio.run(main())
#! ConnectError
#! this sandbox has no network access
# %% 3 urllib.request
import urllib.request

with urllib.request.urlopen("https://example.com", timeout=5) as response:
    print(response.status, len(response.read()))
#! URLError
#! this sandbox has no network access
# %% 4 aiohttp
import asyncio

import aiohttp


async def fetch(url):
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as response:
            return await response.text()


try:
    print(asyncio.run(fetch("https://example.com"))[:20])
except aiohttp.ClientError as error:
    print(type(error).__name__, "this sandbox has no network access" in str(error))
#> ClientConnectorDNSError True
# %% 14 git clone by subprocess
import subprocess

result = subprocess.run(
    ["git", "clone", "--depth", "1", "https://github.com/psf/requests"], capture_output=True, text=True, check=True
)
print(result.stdout)
#wasm! cannot start processes
#native! Error
# %% 46 socket server
import socket
import threading

server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
server.bind(("127.0.0.1", 0))
server.listen(1)


def answer():
    connection, _ = server.accept()
    connection.sendall(connection.recv(100).upper())
    connection.close()


thread = threading.Thread(target=answer)
thread.start()
client = socket.create_connection(server.getsockname())
client.sendall(b"hello")
print(client.recv(100))
thread.join()
#wasm! this sandbox has no network access
#native> b'HELLO'
# %% 47 socket connect/ssl
import socket
import ssl

context = ssl.create_default_context()
try:
    with socket.create_connection(("example.com", 443), timeout=5) as plain:
        with context.wrap_socket(plain, server_hostname="example.com") as secure:
            print(secure.version())
except OSError as error:
    print("no connection:", "this sandbox has no network access" in str(error))
#> no connection: True
# %% 48 http.server in a thread
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer


class Hello(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from " + self.path.encode())

    def log_message(self, *arguments):
        pass


server = HTTPServer(("127.0.0.1", 0), Hello)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/page").read().decode())
server.shutdown()
#wasm! this sandbox has no network access
#native> hello from /page
# %% 77 psycopg
import psycopg

try:
    psycopg.connect("host=db.example.com dbname=test user=postgres", connect_timeout=3)
except psycopg.OperationalError as error:
    print("cannot connect")
#wasm! libpq
#native> cannot connect
# %% 78 psycopg2
import psycopg2

try:
    connection = psycopg2.connect(host="localhost", dbname="test", user="postgres", password="secret")
except psycopg2.OperationalError as error:
    print("cannot connect:", "Connection refused" in str(error))
#wasm! psycopg2
#native> cannot connect: True
# %% 80 boto3
import boto3
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError

s3 = boto3.client(
    "s3",
    region_name="us-east-1",
    aws_access_key_id="AKIAEXAMPLE",
    aws_secret_access_key="example",
    config=Config(retries={"max_attempts": 1}, connect_timeout=3),
)
try:
    print([bucket["Name"] for bucket in s3.list_buckets()["Buckets"]])
except EndpointConnectionError as error:
    print("S3:", error)
#> S3: Could not connect to the endpoint URL: "https://s3.…amazonaws.com/"
# %% 81 openai
import openai

client = openai.OpenAI(api_key="sk-example", max_retries=0)
try:
    client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": "Hi"}])
except openai.APIConnectionError as error:
    print(error, "|", "this sandbox has no network access" in str(error.__cause__))
#> Connection error. | True
# %% 82 anthropic
import anthropic

client = anthropic.Anthropic(api_key="sk-ant-example", max_retries=0)
try:
    client.messages.create(model="claude-sonnet-4-5", max_tokens=8, messages=[{"role": "user", "content": "Hi"}])
except anthropic.APIConnectionError as error:
    print(error, "|", "this sandbox has no network access" in str(error.__cause__))
#> …Connection error. | True
# %% 91 yfinance
# needs wasm: pyodide-cdn
import yfinance as yf

ticker = yf.Ticker("MSFT")
try:
    history = ticker.history(period="1mo")
    print(len(history))
except Exception as error:
    print(type(error).__name__)
#> …Error
# %% 103 webbrowser/email/smtplib
import smtplib
import webbrowser
from email.message import EmailMessage

message = EmailMessage()
message["Subject"], message["From"], message["To"] = "Report", "me@example.com", "you@example.com"
message.set_content("See attachment")
message.add_attachment(b"a,b\n1,2\n", maintype="text", subtype="csv", filename="data.csv")
print(message.get_content_type(), [part.get_filename() for part in message.iter_attachments()])
try:
    with smtplib.SMTP("smtp.example.com", 587, timeout=5) as server:
        server.send_message(message)
except OSError as error:
    print("not sent:", "this sandbox has no network access" in str(error))
print(webbrowser.open("https://example.com"))
#> multipart/mixed ['data.csv']
#> not sent: True
#> False
# %% A page is scraped, with a fallback
from urllib.error import URLError
from urllib.request import Request, urlopen


def download(url, fallback):
    try:
        return urlopen(Request(url, headers={"User-Agent": "Mozilla/5.0"}), timeout=10).read()
    except URLError as error:
        print("offline:", error.reason)
        return fallback


print(download("https://example.org/data.json", b"{}"))
#> offline: …this sandbox has no network access (cannot look up …)
#> b'{}'
# %% pandas reads a CSV of the web
# needs wasm: pyodide-cdn
import pandas as pd

df = pd.read_csv("https://raw.githubusercontent.com/mwaskom/seaborn-data/master/iris.csv")
print(df.head())
#! this sandbox has no network access
