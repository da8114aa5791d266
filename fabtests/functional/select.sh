#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Selection by programs that do not know the provider: only on request, by its
# names.
set -u
dir=$(mktemp -d ./select.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
provider=$PWD/prov/rpmem/.libs
failed=0

command -v fi_info >/dev/null || {
	echo "SKIP: fi_info is missing; on Debian: apt-get install libfabric-bin"
	exit 77
}
unset FI_PROVIDER FI_LOG_LEVEL

fail()
{
	echo "FAIL: $*"
	cat "$dir/out" "$dir/err"
	failed=1
}

# info ARG...: run fi_info; exit code in $code, output in out and err.
info()
{
	# fi_info is not built with the provider's sanitizer, and has leaks of
	# its own.
	LD_PRELOAD=${RP_PRELOAD:-} FI_PROVIDER_PATH=$provider \
		ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 \
		timeout 60 fi_info "$@" >"$dir/out" 2>"$dir/err"
	code=$?
}

# names EXPECTED: compare the names of the listed providers.
names()
{
	got=$(sed -n 's/^provider: //p' "$dir/out" | sort -u | tr '\n' ' ')
	[ "$got" = "$1" ] || fail "listed: '$got' where '$1' belongs"
}

# Without a request the list of providers does not change.
FI_PROVIDER_PATH=/nowhere fi_info >"$dir/without" 2>/dev/null
info
cmp -s "$dir/without" "$dir/out" || fail "plain fi_info lists something else"
info -p tcp
grep -q rpmem "$dir/out" && fail "listed by -p tcp"
info -l
grep -q '^ofi_rpmem:' "$dir/out" || fail "not loaded: nothing was tested"

# Each of the ways to request the provider.
info -p 'tcp;ofi_rpmem'
names 'tcp;ofi_rpmem '
grep '^    type:' "$dir/out" | uniq | tr -d ' \n' |
	grep -q '^type:FI_EP_RDMtype:FI_EP_MSG$' || fail "RDM, then the base's own"
info -p ofi_rpmem
names 'tcp;ofi_rpmem '
FI_PROVIDER='tcp;ofi_rpmem' info
names 'tcp;ofi_rpmem '

# A provider that cannot be a base is refused by name.
FI_LOG_LEVEL=warn info -p 'shm;ofi_rpmem'
names ''
grep -q 'shm cannot be the base' "$dir/err" || fail "shm is refused in silence"

# The bare name in the environment hides the base: one warning gives the remedy.
for args in '' '-p ofi_rpmem' '-p tcp;ofi_rpmem' '-p tcp'; do
	# shellcheck disable=SC2086 # options
	FI_PROVIDER=ofi_rpmem info $args
	[ $code -ne 0 ] || fail "FI_PROVIDER=ofi_rpmem finds a base: $args"
	[ "$(grep -c ofi_rpmem "$dir/err")" = 1 ] || fail "no warning, or more"
	grep -q "use FI_PROVIDER='tcp;ofi_rpmem' (quoted)" "$dir/err" ||
		fail "no remedy: $args"
done

# Without quotes the shell ends the command at the semicolon.
(FI_PROVIDER_PATH=$provider sh -c 'FI_PROVIDER=tcp;ofi_rpmem fi_info') \
	>"$dir/out" 2>"$dir/err" && fail "the shell knows a command ofi_rpmem"
exit $failed
