#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The counters of fi_rpmemd are exact, and end with it; what prints them.
set -u
src=$(cd "${srcdir:-.}" && pwd)
dir=$(mktemp -d ./stats.XXXXXX) || exit 99
top=$PWD
daemon= failed=0 n=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
if ! command -v python3 >/dev/null || [ -n "${RP_SANITIZE:-}" ]; then
	rm -rf "$dir"
	echo "# SKIP: the client is a Python program, which a sanitizer cannot run"
	exit 77
fi
cd "$dir" || exit 99
mkdir m && chmod 755 . m

finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	cd "$top" && rm -rf "$dir"
}
trap finish EXIT

# ok NAME STATUS
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
import sys
sys.path.insert(0, sys.argv[2])
import rpmem_pool
count, length, at = map(int, sys.argv[3:6])
with rpmem_pool.open(sys.argv[1]) as pool:
    for i in range(count):
        pool.write(bytes([i % 256]) * length, at, durable=True)
P
# client COUNT LENGTH AT: durable writes, one after another
client()
{
	LD_LIBRARY_PATH=$top/util/.libs:${LD_LIBRARY_PATH:-} timeout 120 \
		python3 client.py "127.0.0.1:$P:vol" "$src/util/python" "$@"
}

# check EXPRESSION: of the JSON in the file `json`, in Python; t: the target
check()
{
	python3 -c '
import json, sys
all = json.load(open("json"))
p, t = all[0], all[0]["target"]
v = t["pools"][0]
sys.exit(0 if eval("(" + sys.argv[1] + ")") else print("#", sys.argv[1], "of", p) or 1)' "$1"
}

../util/fi_rpmemd --create 8M --port 0 --port-file port \
	--metrics unix:http vol >daemon.out 2>&1 &
daemon=$!
for _ in $(seq 400); do
	[ -e port ] && break
	kill -0 $daemon 2>/dev/null || break
	sleep 0.05
done
[ -e port ] || { cat daemon.out; echo "not ok - no daemon"; exit 1; }
P=$(cat port)
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

# A reader during load never sees a count go down.
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

# The formats.
$info --prometheus >prom
grep -q "^ofi_rpmem_commit_seconds_count{pid=\"$daemon\",command=\"fi_rpmemd\",pool=\"vol\",method=\"agent-msync\"} 3300$" prom &&
	grep -q '^ofi_rpmem_committed_bytes_total{.*pool="vol"} 222000$' prom
ok "Prometheus' text has the same counts" $?
awk '/^ofi_rpmem_commit_seconds_bucket/ {
	v = $NF; if (v < last) down = 1; last = v; k++ }
	END { exit k != 30 || down || last != 3300 }' prom
ok "the buckets are cumulative and end with all commits" $?
if command -v promtool >/dev/null; then
	promtool check metrics <prom >said 2>&1
	ok "promtool check metrics" $?
	sed 's/^/# /' said
	promtool check rules "$src/docs/alerts.yml" >said 2>&1
	ok "promtool check rules" $?
else
	echo "ok - # SKIP promtool is not installed (Debian: prometheus)"
fi

# A misspelt metric would only show nothing.
cat "$src/docs/alerts.yml" "$src/docs/dashboard.json" |
	grep -o 'ofi_rpmem_[a-z_]*' | sed 's/_bucket$//; s/_count$//' | sort -u >used
grep '^# TYPE' prom | cut -d' ' -f3 | sort >made
python3 -m json.tool "$src/docs/dashboard.json" >/dev/null &&
	[ -s used ] && [ -z "$(comm -23 used made | tee unknown)" ]
ok "dashboard and alerts name metrics that exist: $(tr '\n' ' ' <unknown)" $?

# The daemon serves the same text, and idle connections stop nothing.
cat >http.py <<'P'
import socket, subprocess, sys, time
def get(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("http")  # waits while the queue of connections is full
        s.settimeout(60)
        s.sendall(b"GET %s HTTP/1.0\r\n\r\n" % path)
        return b"".join(iter(lambda: s.recv(65536), b""))
# The last client's connection may end between two readings.
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

# Only the same user and root may read.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null &&
	cp ../util/fi_rpmem_info m/info && chmod 755 m/info &&
	setpriv --reuid=65534 --clear-groups m/info --version >/dev/null 2>&1; then
	setpriv --reuid=65534 --clear-groups m/info --stats=$daemon >said 2>&1
	[ $? = 3 ] && grep -q "another user's" said
	ok "another user reads nothing" $?
else
	echo "ok - # SKIP another user: needs root, setpriv, and a folder that all may enter"
fi

kill -9 $daemon
wait $daemon 2>/dev/null
$info >said 2>&1
[ $? = 3 ] && grep -q 'no such process' said && ! ls -d /dev/shm/*ofi_rpmem-stats* 2>/dev/null
ok "SIGKILL leaves nothing" $?
daemon=
exit $failed
