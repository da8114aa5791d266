#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# On a file system that is not listed as trusted commits are refused until the
# operator states trust by the file system's name. The test scripts print that
# they state trust, and never state it for memory without a disk. Needs root to
# mount such a file system in a namespace, or is skipped.
set -u
if [ -z "${RP_IN_NAMESPACE:-}" ]; then
	[ "$(id -u)" = 0 ] || { echo "SKIP: mounting needs root"; exit 77; }
	unshare --mount true || { echo "SKIP: no mount namespaces"; exit 77; }
	RP_IN_NAMESPACE=1 exec unshare --mount sh "$0"
fi
dir=$(mktemp -d ./unlisted.XXXXXX) || exit 99
failed=0

unset FI_PROVIDER FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE FI_OFI_RPMEM_TRUST_FS
. "${srcdir:-.}/util/trust.sh"

finish()
{
	umount "$dir/m/over" "$dir/m" 2>/dev/null
	rm -rf "$dir"
}
trap finish EXIT

fail()
{
	echo "FAIL: $*"
	cat "$dir/out"
	failed=1
}

# doctor CODE DIR: run fi_rpmem_info, which makes a real commit.
doctor()
{
	timeout 60 util/fi_rpmem_info --doctor "$2" >"$dir/out" 2>&1
	code=$?
	[ $code -eq "$1" ] || fail "doctor $2: exit code $code, not $1"
}

# Make an overlay with its upper layer on a tmpfs, which any build folder
# allows.
mkdir "$dir/m"
mount -t tmpfs -o size=3m none "$dir/m" && cd "$dir/m" &&
	mkdir lower upper work over && cd ../.. &&
	mount -t overlay -o "lowerdir=$dir/m/lower,upperdir=$dir/m/upper" \
		-o "workdir=$dir/m/work" none "$dir/m/over" || {
	echo "SKIP: mounting an overlay is not permitted"
	exit 77
}

doctor 3 "$dir/m/over"
grep -q 'FAIL  *memory .*on overlay.*FI_OFI_RPMEM_TRUST_FS=overlay does' \
	"$dir/out" || fail "the refusal does not say how to vouch for it"
grep -q 'FAIL  *commit ' "$dir/out" || fail "a commit was not refused"
# The daemon refuses it with the same reason, and leaves no pool.
timeout 60 util/fi_rpmemd --port 0 --create 1M "$dir/m/over/vol" >"$dir/out" 2>&1 &&
	fail "fi_rpmemd serves it"
grep -q "pool '.*/vol' cannot be made durable.*FI_OFI_RPMEM_TRUST_FS=overlay" \
	"$dir/out" || fail "fi_rpmemd does not say how to vouch for it"
[ ! -e "$dir/m/over/vol" ] || fail "the pool that was refused is left"
FI_OFI_RPMEM_TRUST_FS=ext4,tmpfs
export FI_OFI_RPMEM_TRUST_FS
doctor 3 "$dir/m/over"
grep -q 'FAIL  *commit ' "$dir/out" || fail "others' names vouch for it"

# The scripts state no trust in memory, and print what they state.
trust_folder util/fi_rpmem_info "$dir/m" >"$dir/out" && fail "tmpfs is trusted"
[ "$FI_OFI_RPMEM_TRUST_FS" = ext4,tmpfs ] || fail "changed in vain"
FI_OFI_RPMEM_TRUST_FS=xfs
trust_folder util/fi_rpmem_info "$dir/m/over" >"$dir/out" ||
	fail "overlay is not trusted"
grep -q 'YOUR statement' "$dir/out" || fail "the statement is not aloud"
[ "$FI_OFI_RPMEM_TRUST_FS" = xfs,overlay ] || fail "$FI_OFI_RPMEM_TRUST_FS"
doctor 0 "$dir/m/over"
grep -q 'ok  *commit .*class power' "$dir/out" || fail "no commit"
trust_folder util/fi_rpmem_info "$dir/m/over" >"$dir/out" || fail "again"
[ ! -s "$dir/out" ] || fail "what is trusted is talked about"
exit $failed
