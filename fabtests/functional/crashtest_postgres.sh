#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_crashtest --files convicts PostgreSQL with fsync=off, and acquits it
# with fsync=on: a server for one user commits rows, and recovers each image.
# shellcheck disable=SC2317,SC2016
set -u
# shellcheck source=fabtests/functional/crash_suite.sh
. "${srcdir:-.}/fabtests/functional/crash_suite.sh"
bin=$(ls -d /usr/lib/postgresql/15/bin 2>/dev/null) &&
	[ -x "$bin/postgres" ] && [ -x "$bin/initdb" ] || {
	echo "SKIP: no PostgreSQL 15; on Debian: apt-get install postgresql-15"
	exit 77
}
case ${RP_SANITIZE:-} in ?*)
	echo "SKIP: the tool runs as another user, without this build's libraries"
	exit 77 ;;
esac
crash_enter crashtest_postgres 6
# PostgreSQL refuses root; its user may have no access to the build folder.
run=
if [ "$(id -u)" = 0 ]; then
	id postgres >/dev/null 2>&1 && command -v setpriv >/dev/null || {
		echo "SKIP: no user postgres, or no setpriv"
		exit 77
	}
	run="setpriv --reuid=postgres --regid=postgres --clear-groups --"
fi
shm=$(mktemp -d /var/tmp/crashtest_postgres.XXXXXX) || exit 99
cp "$tool" "$shm/tool" || exit 99
cd "$shm" || exit 99
mkdir tmp
TMPDIR=$shm/tmp HOME=$shm
export TMPDIR HOME

# A statement for each line. COPY runs when the one before it has committed.
{
	for i in 1 2 3 4; do
		echo "insert into t select $i, repeat('x', 900)"
		echo "copy (select $i) to program 'cat >>\$RPMEM_CRASHTEST_LEDGER'"
		[ $i != 2 ] || echo checkpoint
	done
} >work.sql
cat >check <<C
#!/bin/sh
# The pid in it is of before the power cut.
rm -f pg/postmaster.pid
echo "copy (select i from t order by i) to program 'cat >\$PWD/rows'" |
	"$bin/postgres" --single -D pg template1 >log 2>&1
rows=\$(cat rows 2>/dev/null) || { cat log; exit 8; }
found=\$(echo "\$rows" | grep -c .)
acknowledged=\$(wc -l <"\$RPMEM_CRASHTEST_LEDGER")
echo "\$acknowledged rows acknowledged, \$found found"
[ "\$(seq "\$found")" = "\$rows" ] && [ "\$found" -ge "\$acknowledged" ]
C
chmod 755 check "$shm"
[ -z "$run" ] || chown -R postgres: "$shm"

# cluster: a small one with an empty table, before anything is recorded
cluster()
{
	$run mkdir first &&
		$run "$bin/initdb" -A trust --no-locale -E UTF8 --wal-segsize=1 \
			-N -D first/pg >out 2>&1 || return 1
	echo 'shared_buffers = 1MB' >>first/pg/postgresql.conf
	printf '%s\n' 'create table t(i integer primary key, s text)' \
		'update pg_database set datistemplate = false' \
		'drop database postgres' 'drop database template0' |
		$run "$bin/postgres" --single -D first/pg template1 >>out 2>&1
}
cluster || {
	echo "FAIL: no cluster"
	cat out
	exit 1
}

# postgres FSYNC: record the work and check images of it
postgres()
{
	rm -rf files
	cp -a first files
	$run timeout "$limit" ./tool --files files --images "$images" \
		--json json --check "sh '$shm/check'" -- \
		sh -c '"$1" --single -D files/pg -c fsync="$2" template1 <work.sql' \
		sh "$bin/postgres" "$1" >out 2>&1
	status=$?
}

# The first images have lost rows when nothing is flushed.
convicted()
{
	all=$images
	images=2
	postgres off
	images=$all
	ended 1 '^convicted' && grep -q 'rows acknowledged, ' out
}
acquitted()
{
	postgres on && ended 0 '^acquitted' && reached
}
ok "PostgreSQL, fsync=off: convicted" convicted
ok "PostgreSQL, fsync=on: acquitted" fully acquitted
exit $failed
