#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A full disk is reported when a pool is created or a file is copied to the
# disk, and does not harm existing pools. Needs root to mount a small file
# system in a separate namespace; else the test is skipped.
set -u
if [ -z "${RP_IN_NAMESPACE:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo "SKIP: mounting needs root"; exit 77; }
	unshare --mount true || { echo "SKIP: no mount namespaces"; exit 77; }
	RP_IN_NAMESPACE=1 exec unshare --mount sh "$0"
fi
dir=$(mktemp -d ./disk_full.XXXXXX) || exit 99
bin=util
daemon=
failed=0

unset FI_PROVIDER FI_PROVIDER_PATH FI_TCP_IFACE
unset FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE FI_OFI_RPMEM_TRUST_FS

finish()
{
	[ -z "$daemon" ] || { kill -9 "$daemon"; wait "$daemon"; } 2>/dev/null
	umount "$dir/m"
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
exit $failed
