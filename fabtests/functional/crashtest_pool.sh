#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_crashtest --pool: clients that acknowledge what no commit of their pool
# covers, and a target that commits without msync, are convicted; correct clients
# are acquitted.
# shellcheck disable=SC2317
set -u
# shellcheck source=fabtests/functional/crash_suite.sh
. "${srcdir:-.}/fabtests/functional/crash_suite.sh"
crash_enter crashtest_pool 8
export TMPDIR="$here"
client=$top/fabtests/functional/crash_client

# pool STATUS STEPS [VARIABLE...]: check a client that runs these steps.
pool()
{
	want=$1 steps=$2
	shift 2
	env "$@" timeout -k 1 "$limit" "$tool" --pool 1M --images "$images" \
		--json json --check "'$client' check" -- "$client" "$steps" \
		>out 2>&1
	status=$?
	ended "$want" . && { [ "$want" != 0 ] || reached; }
}

"$top/util/fi_rpmem_info" "$here" | grep -q 'class  *power' || {
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
}
mkdir fault || exit 99
ln -s "$top/fabtests/fault/.libs/librpmem-fault-fi.so" fault/ || exit 99
ok "acknowledged behind the commit: acquitted" over_images 24 '' pool 0 wca
ok "acknowledged before the commit: convicted" pool 1 wac
ok "two words that one commit covers can be torn" pool 1 wtca
ok "a target that commits without msync is convicted" pool 1 wca \
	FI_PROVIDER_PATH="$here/fault" RPMEM_FAULT=skip-flush
ok "no commit: convicted" pool 1 wa
ok "a commit in front of the write: convicted" pool 1 cwa
ok "a commit of another pool: convicted" pool 1 wWCa
ok "a commit of each pool: acquitted" over_images 24 '' pool 0 wWcCa

# over WANT CHECK OPTION... -- COMMAND...: test another client of the pool
over()
{
	want=$1 by=$2
	shift 2
	timeout -k 1 "$limit" "$tool" --pool 1M --images "$images" --json json \
		--check "$by" "$@" >out 2>&1
	status=$?
	ended "$want" . && { [ "$want" != 0 ] || reached; }
}

# The reason is at the end of what a command has written.
verbose_setup()
{
	over 2 true --setup 'seq 1000; echo no room is left; exit 1' -- true &&
		grep -q 'no room is left' out
}
ok "a --setup that fails after much output says why" verbose_setup

# Bugs that are planted in the parts of this project which write to pools.
log_of()
{
	over "$1" "'$logger' check" --setup "'$logger' make" -- "$2" append
}
disk_of()
{
	# shellcheck disable=SC2016
	over "$1" "'$client' check" -- sh -c 'exec nbdkit -U - "$0" \
		target="${RPMEM_CRASHTEST_POOL%:*}" pool=pool \
		--run "exec /usr/bin/python3 -I -S disk.py \"\$uri\""' "$2"
}
cat >disk.py <<'P'
import os
import sys
sys.path.append("/usr/lib/python3/dist-packages")
import nbd
h = nbd.NBD()
h.connect_uri(sys.argv[1])
with open(os.environ["RPMEM_CRASHTEST_LEDGER"], "a", encoding="ascii") as f:
    for n in range(1, int(os.environ.get("CRASH_ROUNDS", 5)) + 1):
        h.pwrite(n.to_bytes(8, "little"), 0)
        h.flush()
        print(n, file=f, flush=True)
P
logger=$top/fabtests/functional/crash_log
planted=$src/fabtests/functional/crash_planted.py
ok "a log: acquitted" over_images 24 '' log_of 0 "$logger"
if [ -z "${RP_SANITIZE:-}" ]; then
	python3 "$planted" "$top" log "$here" || exit 99
	ok "a log whose tail may precede its entries: convicted" \
		log_of 1 "$here/crash_log"
fi
if [ -z "${RP_SANITIZE:-}" ] && [ -e "$top/util/.libs/nbdkit-rpmem-plugin.so" ] &&
	command -v nbdkit >/dev/null && /usr/bin/python3 -c 'import nbd'; then
	python3 "$planted" "$top" plugin "$here" || exit 99
	ok "a block device: acquitted" over_images 24 '' disk_of 0 \
		"$top/util/.libs/nbdkit-rpmem-plugin.so"
	ok "a block device that ignores FLUSH: convicted" \
		disk_of 1 "$here/plugin.so"
else
	echo "left out: a block device needs nbdkit, libnbd and a plain build"
fi

# A copy of the tool takes the daemon that is beside it. This one starts for the
# recording and for the image without a loss, and then no more.
no_daemon()
{
	mkdir beside
	cp "$top/util/.libs/fi_rpmem_crashtest" beside/ 2>/dev/null ||
		cp "$tool" beside/
	cat >beside/fi_rpmemd <<S
#!/bin/sh
echo >>'$here/starts'
[ "\$(grep -c '' '$here/starts')" -gt 4 ] || exec '$top/util/fi_rpmemd' "\$@"
echo 'fi_rpmemd: no descriptor is left' >&2
exit 1
S
	chmod +x beside/fi_rpmemd
	tool=$here/beside/fi_rpmem_crashtest
	pool 2 wca
}
ok "a daemon that serves no pool at all convicts nobody" no_daemon
ok "its reason is given" ended 2 \
	'neither on an image nor on a new pool: fi_rpmemd: no descriptor is left'
exit $failed
