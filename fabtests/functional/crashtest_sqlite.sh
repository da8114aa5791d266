#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_crashtest --files convicts SQLite where it does not flush, or loses its
# last commit by its documentation, and acquits it where it promises durability.
# shellcheck disable=SC2317,SC2016
set -u
# shellcheck source=fabtests/functional/crash_suite.sh
. "${srcdir:-.}/fabtests/functional/crash_suite.sh"
/usr/bin/python3 -I -S -c 'import sqlite3' 2>/dev/null || {
	echo "SKIP: SQLite needs /usr/bin/python3 with sqlite3"
	exit 77
}
crash_enter crashtest_sqlite 16
export TMPDIR="$here"

# crash OPTION... -- COMMAND...: run the tool on a new, empty folder.
crash()
{
	rm -rf files crashtest.log
	mkdir files
	timeout -k 1 "$limit" "$tool" --files files --images "$images" "$@" >out 2>&1
	status=$?
}
cat >sqlite.py <<'P'
import os, sqlite3, sys
db = sqlite3.connect(os.environ["RPMEM_CRASHTEST_DIR"] + "/db", isolation_level=None)
db.execute("pragma journal_mode=" + sys.argv[2])
db.execute("pragma synchronous=" + sys.argv[1])
db.execute("create table t(i integer primary key, s text)")
with open(os.environ["RPMEM_CRASHTEST_LEDGER"], "a", encoding="ascii") as ledger:
    for i in range(1, int(os.environ.get("CRASH_ROUNDS", 6)) + 1):
        db.execute("insert into t values(?, ?)", (i, "x" * 900))
        print(i, file=ledger, flush=True)
P
cat >check.py <<'P'
import os, sqlite3, sys
with open(os.environ["RPMEM_CRASHTEST_LEDGER"], encoding="ascii") as f:
    n = len(f.readlines())
db = sqlite3.connect("db")
assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
rows = []
if db.execute("select count(*) from sqlite_master").fetchone()[0]:
    rows = [i for i, in db.execute("select i from t order by i")]
assert rows == list(range(1, len(rows) + 1)), rows
assert len(rows) >= n - int(sys.argv[1]), f"{n} acknowledged, {rows} found"
P
# Few bytes are not flushed in any cut: 64 rounds have 5,000 images.
rounds=160

# sqlite STATUS SYNCHRONOUS JOURNAL [MISSING]: MISSING rows may be lost.
sqlite()
{
	crash --check "/usr/bin/python3 -I -S '$here/check.py' ${4:-0}" \
		--json json -- /usr/bin/python3 -I -S "$here/sqlite.py" "$2" "$3"
	ended "$1" . && { [ "$1" != 0 ] || reached; }
}
# acquitted SYNCHRONOUS JOURNAL [MISSING]: over 200 images, or all that there are
acquitted()
{
	images=200
	fully sqlite 0 "$@"
	passed=$?
	images=16
	return "$passed"
}
ok "SQLite, synchronous=OFF, WAL: convicted" sqlite 1 OFF WAL
ok "SQLite, synchronous=FULL, WAL: acquitted" acquitted FULL WAL
ok "SQLite, synchronous=OFF, DELETE: convicted" sqlite 1 OFF DELETE
# FULL does not flush the removal of the journal: the last commit may be undone.
ok "SQLite, synchronous=FULL, DELETE: the last commit is lost" \
	sqlite 1 FULL DELETE
ok "SQLite, synchronous=FULL, DELETE: all others are kept" \
	acquitted FULL DELETE 1
ok "SQLite, synchronous=EXTRA, DELETE: acquitted" acquitted EXTRA DELETE
exit $failed
