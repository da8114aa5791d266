#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A pool that is larger than memory: fi_rpmemd may use 96 MiB, its page cache
# included, and serves a pool of 512 MiB. A client writes all of it, through a
# power cut, and reads it back; behind another cut every byte is in the file.
set -u
[ -z "${RP_SANITIZE:-}" ] || { echo "SKIP: sanitizers need more memory"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "SKIP: making a memory cgroup needs root"; exit 77; }
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
limit=$((96 << 20)) group=

# make_group FOLDER FILE: make a cgroup whose limit is in this file.
make_group()
{
	group=$1/rpmem.$$
	mkdir "$group" 2>/dev/null && echo $limit >"$group/$2" && return
	echo "SKIP: no cgroup with a limit can be made in $1"
	exit 77
}

# hits: print how often the cgroup has reached its limit.
hits()
{
	cat "$group/memory.failcnt" 2>/dev/null ||
		sed -n 's/^max //p' "$group/memory.events"
}

enter large_pool
trap 'finish; wait; rmdir ${group:+"$group"}' EXIT
v1=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' /proc/mounts)
v2=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
if [ -n "$v1" ]; then
	make_group "$v1" memory.limit_in_bytes
elif [ -z "$v2" ]; then
	echo "SKIP: no memory cgroups are mounted"
	exit 77
elif ! grep -qw memory "$v2/cgroup.subtree_control"; then
	echo "SKIP: $v2 has no controller 'memory' for new cgroups"
	exit 77
else
	make_group "$v2" memory.max
	[ ! -e "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
fi
cat >in_group <<S
#!/bin/sh
echo \$\$ >"$group/cgroup.procs" && exec ../util/fi_rpmemd "\$@"
S
chmod +x in_group
rpmemd=./in_group
RP_SEED=${RP_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "RP_SEED=$RP_SEED"

cat >client.py <<'P'
import random
import sys

sys.path.insert(0, sys.argv[1])
import rpmem_pool

seed, how, where = int(sys.argv[2]), sys.argv[3], sys.argv[4]
rng = random.Random(seed)
MIB = 1 << 20
twice = rng.randbytes(MIB) * 2


def block(i):
    """The bytes of a MiB of the pool: others for each."""
    return twice[4099 * i % MIB:][:MIB]


if how == "file":
    with open(where, "rb") as f:
        f.seek(65536)
        for i in range(512):
            assert f.read(MIB) == block(i), f"MiB {i} of the file"
    sys.exit()
with rpmem_pool.open(where, timeout=600) as pool:
    for i in range(512):
        pool.write(block(i), i * MIB)
        if i % 32 == 31:
            pool.commit()
        print("wrote", i, flush=True)
    for i in range(512):
        assert pool.read(MIB, i * MIB) == block(i), f"MiB {i}"
P

: >vol.safe
serve_vol --create 512M
skip_without_disk vol daemon.out
stop
cp vol vol.safe
serve_vol
: >client.out
timeout 600 python3 client.py "$src/util/python" "$RP_SEED" pool \
	127.0.0.1:"$port":vol >client.out 2>&1 &
client=$!
pids="$pids $client"
at=$((128 + RP_SEED % 256))
while ! grep -q "^wrote $at$" client.out; do
	kill -0 $client 2>/dev/null || break
	sleep 0.02
done
cut_power
serve_vol
wait $client || fail "writing and reading: $(tail -n 5 client.out)"
cut_power
python3 client.py "$src/util/python" "$RP_SEED" file vol || fail "behind the last cut"
[ "$(hits)" -gt 0 ] || fail "the limit was not reached: nothing was tested"
echo "the limit of $limit bytes was reached $(hits) times"
exit $failed
