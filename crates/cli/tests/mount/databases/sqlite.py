"""Changes a SQLite database until it is killed, or verifies it.

Usage: sqlite.py change|verify FILE JOURNAL_MODE FIRST

Each transaction moves money between two of 100 accounts and adds a row to the log. `change` prints the number of each
committed transaction, from FIRST on. `verify` prints the greatest number of the log.
"""

import os
import random
import sqlite3
import sys

ACCOUNTS, EACH = 100, 1000


def connect(path, mode):
    connection = sqlite3.connect(path, isolation_level=None)
    assert connection.execute(f"PRAGMA journal_mode={mode}").fetchone()[0] == mode
    connection.execute("PRAGMA synchronous=EXTRA")
    return connection


def prepare(connection):
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, money INTEGER)")
    connection.execute("CREATE TABLE IF NOT EXISTS log (number INTEGER PRIMARY KEY, text TEXT)")
    connection.execute("CREATE INDEX IF NOT EXISTS texts ON log (text)")
    accounts = [(number, EACH) for number in range(ACCOUNTS)]
    connection.executemany("INSERT OR IGNORE INTO account VALUES (?, ?)", accounts)
    connection.execute("COMMIT")


def change(connection, path, first):
    prepare(connection)
    chance = random.Random(first)
    number = first
    while True:
        connection.execute("BEGIN IMMEDIATE")
        source, target = chance.sample(range(ACCOUNTS), 2)
        connection.execute("UPDATE account SET money = money - 1 WHERE id = ?", (source,))
        connection.execute("UPDATE account SET money = money + 1 WHERE id = ?", (target,))
        text = chance.randbytes(chance.randrange(2000)).hex()
        connection.execute("INSERT INTO log VALUES (?, ?)", (number, text))
        connection.execute("COMMIT")
        # SQLite ignores an error of opendir(3) before it syncs the directory (unixDelete), so that a server that was
        # killed in between has not stored the end of the transaction. A server that responds now was alive then.
        os.statvfs(path)
        print(number, flush=True)
        number += 1


def verify(connection):
    faults = connection.execute("PRAGMA integrity_check").fetchall()
    assert faults == [("ok",)], faults
    money = connection.execute("SELECT count(*), sum(money) FROM account").fetchone()
    assert money == (ACCOUNTS, ACCOUNTS * EACH), money
    rows, last = connection.execute("SELECT count(*), max(number) FROM log").fetchone()
    assert rows == (last or 0), (rows, last)
    print(last or 0)


what, path, mode, first = sys.argv[1:]
if what == "change":
    change(connect(path, mode), path, int(first))
else:
    verify(connect(path, mode))
