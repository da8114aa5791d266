#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A full disk is reported when a pool is created or a file is copied to the
# disk, and does not harm existing pools. Needs root to mount a small file
# system in a separate namespace; else the test is skipped. Clients of nbdkit's plugin
# can write to such a pool; if the device below its file system is full, they get an error.
set -u
if [ -z "${RP_IN_NAMESPACE:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo "SKIP: mounting needs root"; exit 77; }
	unshare --mount true || { echo "SKIP: no mount namespaces"; exit 77; }
	RP_IN_NAMESPACE=1 exec unshare --mount sh "$0"
fi
dir=$(mktemp -d ./disk_full.XXXXXX) || exit 99
bin=util
daemon= pids=
failed=0

unset FI_PROVIDER FI_PROVIDER_PATH FI_TCP_IFACE
unset FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE FI_OFI_RPMEM_TRUST_FS

finish()
{
	for pid in $daemon $pids; do
		{ kill -9 "$pid"; wait "$pid"; } 2>/dev/null
	done
	umount "$dir/m"
	umount "$dir/thin/m" "$dir/thin" 2>/dev/null
	rm -rf "$dir"
}
trap finish EXIT

fail()
{
	echo "FAIL: $*"
	cat "$dir/out"
	failed=1
}

# expect CODE COMMAND...
expect()
{
	want=$1
	shift
	timeout 120 "$@" >"$dir/out" 2>&1
	code=$?
	[ $code -eq "$want" ] || fail "$*: exit code $code, not $want"
}

mkdir "$dir/m"
mount -t tmpfs -o size=3m none "$dir/m" || {
	echo "SKIP: mounting is not permitted"
	exit 77
}
head -c 1000000 /dev/urandom >"$dir/src"

# There is no space for a pool: reported at once, and no file remains.
expect 5 $bin/fi_rpmemd --port 0 --create 8M "$dir/m/large"
grep -q 'make room, or give a smaller size' "$dir/out" || fail "no remedy"
[ -z "$(ls -A "$dir/m")" ] || fail "left behind: $(ls -A "$dir/m")"

# The blocks of an existing pool are allocated: commits succeed on a full disk.
$bin/fi_rpmemd --port 0 --port-file "$dir/port" --create 1M "$dir/m/pool" \
	>"$dir/daemon" 2>&1 &
daemon=$!
for _ in $(seq 200); do
	[ -e "$dir/port" ] && break
	sleep 0.05
done
pool=127.0.0.1:$(cat "$dir/port"):pool || exit 99
head -c 8000000 /dev/zero >"$dir/m/filler" 2>/dev/null &&
	fail "the disk is not full"
expect 0 $bin/fi_rpmem_cp --class process --verify "$dir/src" "$pool"

# There is no space for the local copy: reported, and no partial file remains.
# Other copies are served.
expect 5 $bin/fi_rpmem_cp --length 1000000 "$pool" "$dir/m/back"
[ "$(ls -A "$dir/m" | sort | tr '\n' ' ')" = 'filler pool ' ] ||
	fail "left behind: $(ls -A "$dir/m")"
expect 0 $bin/fi_rpmem_cp --length 1000000 "$pool" "$dir/back"
cmp "$dir/src" "$dir/back" || fail "what comes back differs"

# The block device of nbdkit's plugin.
skip_nbd()
{
	echo "ok - a full disk behind nbdkit # SKIP $*"
	exit $failed
}
plugin=$PWD/util/.libs/nbdkit-rpmem-plugin.so
uri="nbd+unix:///?socket=$PWD/$dir/nbd"
[ -z "${RP_SANITIZE:-}" ] || skip_nbd "nbdkit is not built with the sanitizer"
[ -e "$plugin" ] || skip_nbd "built without nbdkit; on Debian: apt-get install nbdkit-plugin-dev"
command -v nbdcopy >/dev/null && /usr/bin/python3 -c 'import nbd' 2>/dev/null ||
	skip_nbd "on Debian: apt-get install nbdkit libnbd-bin python3-libnbd"
FI_PROVIDER_PATH=$PWD/prov/rpmem/.libs
export FI_PROVIDER_PATH

# export_pool PORT ARGUMENT...: start nbdkit, and return once it serves.
export_pool()
{
	at=127.0.0.1:$1
	shift
	nbdkit -f -U "$PWD/$dir/nbd" "$plugin" target="$at" "$@" 2>"$dir/nbdkit" &
	nbdkit=$!
	pids="$pids $nbdkit"
	for _ in $(seq 400); do
		nbdinfo --size "$uri" >/dev/null 2>&1 && return
		kill -0 $nbdkit 2>/dev/null || break
		sleep 0.05
	done
	cat "$dir/nbdkit"
	exit 99
}

export_pool "$(cat "$dir/port")" pool=pool class=process
head -c 1M /dev/urandom >"$dir/full"
expect 0 nbdcopy --flush "$dir/full" "$uri"
cmp -n 1M -i 65536:0 "$dir/m/pool" "$dir/full" || fail "the pool has other bytes"
kill $nbdkit && wait $nbdkit
rm "$dir/nbd"

# The file system believes that the device has 64 MiB: each write succeeds until it is
# written back.
command -v mkfs.ext4 >/dev/null || skip_nbd "mkfs.ext4 is missing; on Debian: apt-get install e2fsprogs"
mkdir "$dir/thin" && mount -t tmpfs -o size=12m none "$dir/thin" || exit 99
truncate -s 64M "$dir/thin/disk" && mkdir "$dir/thin/m" || exit 99
mkfs.ext4 -q -E lazy_itable_init=0,nodiscard -O ^has_journal "$dir/thin/disk" || exit 99
mount -o loop "$dir/thin/disk" "$dir/thin/m" || skip_nbd "no loop devices"
FI_OFI_RPMEM_TRUST_FS=ext4 $bin/fi_rpmemd --port 0 --port-file "$dir/port.thin" \
	--create 16M "$dir/thin/m/pool" >"$dir/daemon.thin" 2>&1 &
thin=$!
pids="$pids $thin"
for _ in $(seq 200); do
	[ -e "$dir/port.thin" ] && break
	sleep 0.05
done
export_pool "$(cat "$dir/port.thin")" pool=pool
expect 0 /usr/bin/python3 - "$uri" <<'P'
import os
import sys
import nbd

h = nbd.NBD()
h.connect_uri(sys.argv[1])
data = os.urandom(1 << 20)
for i in range(16):
    h.pwrite(data, i << 20)
for call in h.flush, h.flush, lambda: h.pwrite(b"x", 0, nbd.CMD_FLAG_FUA):
    try:
        call()
    except nbd.Error as e:
        assert e.errno == "EIO", e
    else:
        raise AssertionError("success on a full disk")
assert h.pread(1 << 20, 15 << 20) == data
P
grep -q "the disk of pool 'pool' on 127.0.0.1 has failed: check it" "$dir/nbdkit" || {
	fail "nbdkit does not say it"
	cat "$dir/nbdkit" "$dir/daemon.thin"
}
exit $failed
