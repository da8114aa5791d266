#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The counters of fi_rpmemd are exact, and end with it; what prints them.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
n=0
if ! command -v python3 >/dev/null || [ -n "${RP_SANITIZE:-}" ]; then
	echo "# SKIP: the client is a Python program, which a sanitizer cannot run"
	exit 77
fi
enter stats
mkdir m && chmod 755 . m

# ok NAME STATUS: print the result of a test
ok()
{
	n=$((n + 1))
	if [ "$2" = 0 ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		failed=1
	fi
}

cat >client.py <<'P'
import json, os, signal, subprocess, sys, threading, time
sys.path.insert(0, sys.argv[2])
import rpmem_pool

def dump(pid=os.getpid()):
    """Write the counters of a process, by default of this one, to files."""
    for form in "json", "prometheus":
        with open(form, "wb") as f:
            subprocess.check_call(["../util/fi_rpmem_info", "--" + form,
                                   f"--stats={pid}"], stdout=f)

def write_to_stopped(daemon):
    """Write to a daemon that is stopped, so the write is outstanding."""
    os.kill(daemon, signal.SIGSTOP)
    late = threading.Thread(target=pool.write, args=(b"late", at),
                            kwargs={"durable": True})
    late.start()
    for i in range(1200):
        dump()
        with open("json", encoding="ascii") as f:
            if json.load(f)[0]["initiator"]["outstanding"]:
                break
        time.sleep(0.05)
    os.rename("json", "outstanding.json")
    os.rename("prometheus", "outstanding.prom")
    dump(daemon)
    os.rename("json", "stopped.json")
    os.kill(daemon, signal.SIGCONT)
    late.join()
    dump()

count, length, at = map(int, sys.argv[3:6])
required = int(os.environ.get("REQUIRED", rpmem_pool.POWER))
with rpmem_pool.open(sys.argv[1], required=required) as pool:
    for i in range(count):
        pool.write(bytes([i % 256]) * length, at, durable=True)
        if os.path.exists("stop"):
            break
    for i in range(int(os.environ.get("COMMITS", 0))):
        pool.write(bytes(9), at)
        pool.commit()
    if "COMMITS" in os.environ:
        dump()
    if "STOP" in os.environ:
        write_to_stopped(int(os.environ["STOP"]))
    if "FAILS" in os.environ:
        try:
            pool.write(b"fails", at, durable=True)
        except OSError:
            dump()
P
# client COUNT LENGTH AT: make durable writes, one after another
client()
{
	LD_LIBRARY_PATH=$top/util/.libs:${LD_LIBRARY_PATH:-} timeout 120 \
		python3 client.py "127.0.0.1:$P:vol" "$src/util/python" "$@"
}

# check EXPRESSION [FILE]: evaluate it in Python on the file json; t: the target
check()
{
	python3 -c '
import json, sys
all = json.load(open(sys.argv[2]))
p, t = all[0], all[0]["target"]
v = (t["pools"] or [None])[0]
sys.exit(0 if eval("(" + sys.argv[1] + ")") else print("#", sys.argv[1], "of", p) or 1)' "$1" "${2:-json}"
}

serve --create 8M --port 0 --metrics unix:http vol
info="../util/fi_rpmem_info --stats=$daemon"

$info --json >json
check 'len(all) == 1 and p["pid"] == '$daemon' and p["command"] == "fi_rpmemd" and
v["pool"] == "vol" and v["registered"] and v["length"] == 8 << 20 and
v["commits"]["count"] == t["requests"] == t["sessions"] == 0'
ok "a new daemon has a pool and no commit" $?
client 300 100 0
ok "a client commits" $?
$info --json >json
check 'v["commits"]["count"] == 300 and v["bytes"] == 30000 and
t["requests"] == 300 and t["accepted"] == 1 and t["failures"] == {} and
0 < v["commits"]["p50_us"] <= v["commits"]["p99_us"] and
v["commits"]["seconds"] > 0 and t["jobs"] == 0'
ok "commits, bytes and requests are exact" $?
check 'v["msync"]["count"] >= 300 and v["msync"]["seconds"] < v["commits"]["seconds"]'
ok "flushes are counted" $?
$info | grep -q 'vol .* commits 300  bytes 30000  p50 '
ok "a person reads the same" $?

# A reader under load never gets a count that is lower than before.
client 3000 64 0 & load=$!
python3 - $daemon <<'P'
import json, subprocess, sys, time
last = [0] * 4
moved = 0
end = time.monotonic() + 120
while last[0] < 3300 and time.monotonic() < end:
    p = json.loads(subprocess.check_output(
        ["../util/fi_rpmem_info", "--stats=" + sys.argv[1], "--json"]))[0]
    v = p["target"]["pools"][0]
    now = [v["commits"]["count"], v["bytes"], p["target"]["requests"],
           v["commits"]["seconds"]]
    if any(a > b for a, b in zip(last, now)):
        sys.exit(f"# {last} and then {now}")
    moved += now[0] not in (300, last[0])
    last = now
if last[0] != 3300 or last[1] != 30000 + 192000:
    sys.exit(f"# {last}")
print(f"# {moved} different readings")
P
ok "a reader under load sees no count go down, and the right sum" $?
wait $load

# Output formats; promtool.sh checks the format itself.
$info --prometheus >prom
grep -q "^ofi_rpmem_commit_seconds_count{pid=\"$daemon\",command=\"fi_rpmemd\",pool=\"vol\",method=\"agent-msync\"} 3300$" prom &&
	grep -q '^ofi_rpmem_committed_bytes_total{.*pool="vol"} 222000$' prom
ok "Prometheus' text has the same counts" $?
awk '/^ofi_rpmem_commit_seconds_bucket/ {
	v = $NF; if (v < last) down = 1; last = v; k++ }
	END { exit k != 30 || down || last != 3300 }' prom
ok "the buckets are cumulative and end with all commits" $?
# The daemon serves the same text by HTTP, and idle connections block nothing.
cat >http.py <<'P'
import socket, subprocess, sys, time
def get(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("http")  # waits while the queue of connections is full
        s.settimeout(60)
        s.sendall(b"GET %s HTTP/1.0\r\n\r\n" % path)
        return b"".join(iter(lambda: s.recv(65536), b""))
# Repeat: the last client's connection may end between the two readings.
end = time.monotonic() + 60
while True:
    want = subprocess.check_output(sys.argv[1:])
    head, text = get(b"/metrics").split(b"\r\n\r\n", 1)
    if text == want or time.monotonic() > end:
        break
if b" 200 " not in head or b"text/plain; version=0.0.4" not in head:
    sys.exit(f"# {head}")
if text != want:
    sys.exit("# another text")
if b" 404 " not in get(b"/"):
    sys.exit("# / is no 404")
idle = []
for i in range(40):
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    idle.append(s)
    try:
        s.connect("http")
        s.sendall(b"GET /met")
    except OSError:
        pass
print("idle", flush=True)
sys.stdin.readline()
for s in idle:
    s.close()
sys.exit(0 if b" 200 " in get(b"/metrics") else "# no reply behind idle connections")
P
mkfifo go
python3 http.py $info --prometheus <go >http.out & http=$!
exec 3>go
for _ in $(seq 400); do
	grep -q idle http.out && break
	kill -0 $http 2>/dev/null || break
	sleep 0.05
done
grep -q idle http.out && client 20 64 0
ok "a client commits while 40 connections to the metrics are idle" $?
echo >&3
exec 3>&-
wait $http
ok "GET /metrics is the text of fi_rpmem_info" $?
timeout 30 ../util/fi_rpmemd --create 1M --port 0 --metrics 0.0.0.0:9 other >said 2>&1
[ $? = 6 ] && grep -q loopback said && [ ! -e other ]
ok "the metrics are served on loopback and unix sockets only" $?

# The initiator counts and times each operation of the target.
$info --prometheus >before
COMMITS=40 client 60 100 0
check 'p["initiator"]["durable"].keys() == {"agent-msync"} and
p["initiator"]["durable"]["agent-msync"]["count"] == 100 and
p["initiator"]["operations"]["commit"]["count"] == 40 and
p["initiator"]["failures"] == {} and p["initiator"]["outstanding"] == 0'
ok "the histogram of an initiator has all its commits" $?
$info --prometheus | cat before - | awk '/^ofi_rpmem_commit_seconds_count/ {
	n = $NF - n } END { exit n != 100 }'
ok "the target has as many" $?
awk '/^ofi_rpmem_durable_seconds_bucket/ {
	v = $NF; if (v < last) down = 1; last = v; k++ }
	/^ofi_rpmem_durable_seconds_count/ { n = $NF }
	END { exit k != 30 || down || last != 100 || n != 100 }' prometheus
ok "its buckets are cumulative and end with all commits" $?

# The target is stopped, and goes on before its initiator would give up.
FI_OFI_RPMEM_TIMEOUT=600000 STOP=$daemon client 1 64 0
check 'p["initiator"]["outstanding"] == 1 and p["initiator"]["connected"] == 1 and
p["initiator"]["durable"]["agent-msync"]["count"] == 1' outstanding.json &&
	grep -q '^ofi_rpmem_operations_outstanding{.*} 1$' outstanding.prom
ok "a write to a target that is stopped is outstanding" $?
check 't["sessions"] == 1' stopped.json
ok "its target has one session" $?
check 'p["initiator"]["outstanding"] == 0 and
p["initiator"]["durable"]["agent-msync"]["count"] == 2' &&
	grep -q '^ofi_rpmem_operations_outstanding{.*} 0$' prometheus
ok "it is not when the target goes on" $?

# said FILE TEXT: wait until the file has a line with the text.
said()
{
	for _ in $(seq 600); do
		grep -q "$2" "$1" && return
		sleep 0.05
	done
	sed 's/^/# /' "$1"
	return 1
}
# --watch prints rates while the daemon runs, and ends by a signal.
$info --watch >watched 2>&1 & watch=$!
said watched 'vol .* commits [0-9]*  bytes [0-9]*  p50 ' &&
	said watched 'vol .* commits 0/s  bytes 0/s$'
ok "--watch prints the sum first, and then a rate of 0 without load" $?
client 1000000 64 0 & load=$!
said watched 'vol .* commits [1-9][0-9]*/s  bytes [1-9][0-9]*/s  p50 .* us  p99 '
ok "--watch prints a rate, and times, under load" $?
>stop
wait $load
rm stop
kill $watch
wait $watch
[ $? = 143 ]
ok "SIGTERM ends --watch" $?

# Only the daemon's user and root may read.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null &&
	cp ../util/fi_rpmem_info m/info && chmod 755 m/info &&
	setpriv --reuid=65534 --clear-groups m/info --version >/dev/null 2>&1; then
	setpriv --reuid=65534 --clear-groups m/info --stats=$daemon >said 2>&1
	[ $? = 3 ] && grep -q "another user's" said
	ok "another user reads nothing" $?
	# The descriptors of this process are listed, and cannot be read.
	setpriv --reuid=65534 --regid=65534 --clear-groups sleep 100 & slept=$!
	until [ "$(cat /proc/$slept/comm)" = sleep ]; do sleep 0.02; done
	setpriv --reuid=65534 --regid=65533 --clear-groups m/info --stats=$slept >said 2>&1
	[ $? = 3 ] && grep -q "another user's or group's" said
	ok "another group's process is named so" $?
	kill $slept && wait $slept
else
	echo "ok - # SKIP another user: needs root, setpriv, and a folder that all may enter"
fi

$info --watch >watched 2>&1 & watch=$!
../util/fi_rpmem_info --stats --watch >all 2>&1 & all=$!
said watched '  target' && said all "process $daemon  fi_rpmemd$"
kill -9 $daemon
wait $daemon 2>/dev/null
wait $watch
[ $? = 3 ] && grep -q "process $daemon: it has ended" watched
ok "the end of the process ends --watch, with a line" $?
said all "process $daemon  fi_rpmemd  has ended"
gone=$?
kill $all && [ $gone = 0 ]
ok "--watch of all processes says so, and goes on" $?
wait $all
$info >said 2>&1
[ $? = 3 ] && grep -q 'no such process' said && ! ls -d /dev/shm/*ofi_rpmem-stats* 2>/dev/null
ok "SIGKILL leaves nothing" $?

# No counter goes down or vanishes when pools are removed and added, even with
# more pools than the page has room for.
names()
{
	printf '%s\n' 'port = 0' 'metrics = unix:http'
	for i in "$@"; do
		printf '%s\n' "[pool p$i]" "path = p$i" 'create = 64K'
	done
}
names keep $(seq 40) >conf
serve --config conf
info="../util/fi_rpmem_info --stats=$daemon"
cat >monotonic.py <<'P'
import re, subprocess, sys
def read(path):
    with open(path, encoding="ascii") as f:
        return {l.rsplit(" ", 1)[0]: float(l.rsplit(" ", 1)[1]) for l in f
                if re.match(r"\w+_(total|count|sum|bucket)\{", l)}
old, new = map(read, sys.argv[1:])
wrong = [f"# {k}: {v} and then {new.get(k)}" for k, v in old.items()
         if new.get(k, -1) < v]
for line in wrong[:5]:
    print(line)
sys.exit(bool(wrong) or len(old) < 100)
P
# turn N POOL...: serve these pools, commit to one, compare the metrics.
turn()
{
	count=$1 to=$2
	shift
	$info --prometheus >before
	names "$@" >conf
	kill -HUP $daemon
	for _ in $(seq 600); do
		[ "$(grep -c 'SIGHUP: ' daemon.out)" -ge "$count" ] && break
		sleep 0.05
	done
	LD_LIBRARY_PATH=$top/util/.libs:${LD_LIBRARY_PATH:-} timeout 120 \
		python3 client.py "127.0.0.1:$P:p$to" "$src/util/python" 9 64 0
	$info --prometheus >prom
	python3 monotonic.py before prom
	ok "no counter has gone down in turn $count, to pool $to" $?
}
turn 1 keep $(seq 2 40)
turn 2 1 keep
turn 3 keep $(seq 41 80)
turn 4 2 $(seq 81 100)
turn 5 1 keep 2
awk '/^ofi_rpmem_requests_total/ { n = $NF } /^ofi_rpmem_commit_seconds_count/ { c += $NF }
	END { exit n != 45 || c != 45 }' prom
ok "all commits of five turns are in the metrics of the pools" $?
kill $daemon
wait $daemon
daemon=

# Pool names that differ only after their first 60 bytes.
long=$(printf '%060d' 0)
serve --create 1M --port 0 "$long.a" "$long.b"
../util/fi_rpmem_info --stats=$daemon --prometheus >prom
[ "$(grep -c "^ofi_rpmem_pool_bytes.*pool=\"$long\.[ab]\"" prom)" = 2 ]
ok "pools with long names have counters of their own" $?
stop
daemon=

# The gauges of a pool follow its region.
# gauge NAME VALUE: wait until the only pool of the daemon has this value
gauge()
{
	for _ in $(seq 600); do
		../util/fi_rpmem_info --stats=$daemon --prometheus >prom
		grep -q "^$1{.*} $2\$" prom && return
		sleep 0.05
	done
	grep "^$1{" prom
	return 1
}
: >operator
FI_OFI_RPMEM_OPERATOR=$PWD/operator
export FI_OFI_RPMEM_OPERATOR
serve --create 1M --port 0 gauges
if grep -q '^gauges .* power ' daemon.out; then
	gauge ofi_rpmem_pool_class 2
	ok "the class of a pool that survives a power cut is 2" $?
	printf '%s\n' '[host]' 'limit class = process' >new && mv new operator
	gauge ofi_rpmem_pool_class 1
	ok "it becomes 1 where the operator limits it to process" $?
	stop
	mkdir fault
	ln -s "$top/fabtests/fault/.libs/librpmem-fault-fi.so" fault/ || exit 99
	: >operator
	provider=$FI_PROVIDER_PATH
	FI_PROVIDER_PATH=$PWD/fault RPMEM_FAULT=fail-flush
	# As if daemon.out was the journal of a service.
	: >daemon.out
	FI_LOG_LEVEL=warn FI_LOG_PROV=ofi_rpmem
	JOURNAL_STREAM=$(stat -c %d:%i daemon.out)
	export RPMEM_FAULT FI_LOG_LEVEL FI_LOG_PROV JOURNAL_STREAM
	serve --port 0 vol
	FI_PROVIDER_PATH=$provider
	unset RPMEM_FAULT FI_LOG_LEVEL FI_LOG_PROV JOURNAL_STREAM
	gauge ofi_rpmem_pool_failed 0
	ok "a pool whose flushes were not tried has not failed" $?
	FAILS=1 client 0 64 0 && gauge ofi_rpmem_pool_failed 1 &&
		gauge ofi_rpmem_region_failures_total 1
	ok "a pool whose flush fails has failed" $?
	../util/fi_rpmem_info --stats=$daemon --json >target.json
	check 't["failures"] == {"flush failed": 1} and t["failed_regions"] == 1' target.json &&
		grep -q '^ofi_rpmem_failures_total{.*,status="flush failed"} 1$' prom
	ok "the target has counted its status" $?
	check 'p["initiator"]["failures"] == {"flush failed": 1}' &&
		grep -q '^ofi_rpmem_operation_failures_total{.*,status="flush failed"} 1$' prometheus
	ok "its initiator has counted the same one" $?
	grep -q "^<4>fi_rpmemd: ofi_rpmem: .*flushing a region of .* bytes failed" daemon.out
	ok "the line about it is a warning in a journal" $?
else
	echo "ok - # SKIP no file system here on which msync reaches a disk"
fi
stop
unset FI_OFI_RPMEM_OPERATOR
shm=$(mktemp -d /dev/shm/rpmem-stats.XXXXXX 2>/dev/null) || shm=
if [ -n "$shm" ] && [ "$(stat -f -c %T "$shm")" = tmpfs ]; then
	FI_OFI_RPMEM_EMULATE=1 serve --port 0 --create 1M "$shm/vol"
	gauge ofi_rpmem_cache_flushes_total 0
	ok "a new pool on emulated persistent memory has no flush" $?
	REQUIRED=2 client 7 64 0 &&
		gauge ofi_rpmem_cache_flushes_total '[1-9][0-9]*' &&
		gauge ofi_rpmem_msyncs_total 0
	ok "its commits flush cache lines, and call no msync" $?
	awk '/^ofi_rpmem_cache_flush_seconds_total/ { s = $NF }
		/^ofi_rpmem_commit_seconds_sum/ { c = $NF }
		END { print "# " s " s of flushes in " c " s of commits"
		      exit !(0 < s && s < c) }' prom
	ok "the time of these flushes is a part of the time of the commits" $?
	gauge ofi_rpmem_pool_class 0
	ok "its class is 0" $?
	stop
else
	echo "ok - # SKIP /dev/shm is no tmpfs"
fi
daemon=
exit $failed
