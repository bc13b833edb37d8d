"""pg8000: queries over TLS and without it, and a wrong password. The argument is the port of the server."""

import ssl
import sys

import pg8000.dbapi

OPTIONS = {"user": "tester", "host": "db.example.com", "port": int(sys.argv[1]), "database": "postgres"}

for context in (False, ssl.create_default_context()):
    connection = pg8000.dbapi.connect(**OPTIONS, password="the password", ssl_context=context)
    cursor = connection.cursor()
    cursor.execute("select ssl from pg_stat_ssl where pid = pg_backend_pid()")
    assert cursor.fetchone() == [bool(context)]
    cursor.execute("create temporary table t (a int, b text)")
    for index in range(100):
        cursor.execute("insert into t values (%s, %s)", (index, f"text {index}"))
    cursor.execute("select sum(a), max(b) from t")
    assert cursor.fetchone() == [4950, "text 99"]
    connection.close()

try:
    pg8000.dbapi.connect(**OPTIONS, password="wrong")
    raise AssertionError
except pg8000.dbapi.DatabaseError as error:
    assert "password authentication failed" in str(error), error
