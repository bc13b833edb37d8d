"""pymysql: queries with and without TLS, transactions, and a wrong password. The argument is the port."""

import ssl
import sys

import pymysql

OPTIONS = {"user": "tester", "host": "db.example.com", "port": int(sys.argv[1]), "database": "work"}

for is_secure, tls in ((False, {"ssl_disabled": True}), (True, {"ssl": ssl.create_default_context()}), (True, {})):
    connection = pymysql.connect(**OPTIONS, **tls, password="the password")
    with connection, connection.cursor() as cursor:
        cursor.execute("show status like 'Ssl_version'")
        assert bool(cursor.fetchone()[1]) == is_secure
        cursor.execute("create temporary table t (a int, b text)")
        cursor.executemany("insert into t values (%s, %s)", [(index, f"text {index} ä") for index in range(100)])
        connection.rollback()
        cursor.executemany("insert into t values (%s, %s)", [(index, f"text {index} ä") for index in range(100)])
        connection.commit()
        cursor.execute("select sum(a), max(b), count(*) from t")
        assert cursor.fetchone() == (4950, "text 99 ä", 100)
        cursor.execute("select repeat('x', 3000000)")
        assert len(cursor.fetchone()[0]) == 3_000_000

try:
    pymysql.connect(**OPTIONS, password="wrong")
    raise AssertionError
except pymysql.err.OperationalError as error:
    assert error.args[0] == 1045, error
