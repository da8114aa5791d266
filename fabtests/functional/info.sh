#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_info prints the facts, and its doctor finds faults made on purpose.
set -u
dir=$(mktemp -d ./info.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
provider=$PWD/prov/rpmem/.libs
failed=0

fail()
{
	echo "FAIL: $*"
	cat "$dir/out"
	failed=1
}

# doctor CODE: run fi_rpmem_info in the caller's environment; output in out.
doctor()
{
	want=$1
	shift
	timeout 60 util/fi_rpmem_info --doctor "$@" >"$dir/out" 2>&1
	code=$?
	[ $code -eq "$want" ] || fail "doctor $*: exit code $code, not $want"
}

# line STATUS CHECK TEXT: check for this line in the last output.
line()
{
	grep -q "^$1  *$2  *.*$3" "$dir/out" || fail "no line '$1 $2 $3'"
}

unset FI_PROVIDER FI_PROVIDER_PATH FI_TCP_IFACE
unset FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE FI_OFI_RPMEM_OPERATOR
unset FI_OFI_RPMEM_PORTS

# The address at which a target would listen is printed.
ports()
{
	grep -q "^  listener ports  *$1" "$dir/out" || fail "ports: not '$1'"
}
util/fi_rpmem_info >"$dir/out" 2>&1
ports any
FI_OFI_RPMEM_PORTS=5000-5100 util/fi_rpmem_info >"$dir/out" 2>&1
ports 5000-5100

# No check fails, as far as this folder's file system allows.
FI_PROVIDER_PATH=$provider FI_PROVIDER='tcp;ofi_rpmem' doctor 0 "$dir"
line ok commit 'committed, class power by agent-msync'
line ok 'provider listed' 'tcp;ofi_rpmem'
line ok 'cache steering' 'libibverbs'
grep -q '^warn\|^FAIL' "$dir/out" && fail "a remedy where nothing is wrong"

# A libibverbs with DMA handles is one that has this function.
if command -v cc >/dev/null; then
	echo 'int ibv_alloc_dmah;' >"$dir/v.c"
	cc -shared -o "$dir/v.so" "$dir/v.c" || fail "cc"
	LD_PRELOAD=$(realpath "$dir/v.so") FI_PROVIDER_PATH=$provider FI_PROVIDER='tcp;ofi_rpmem' doctor 0 "$dir"
	line ok 'cache steering' 'not used: a region can ask'
fi

# The tool finds the provider, but the programs of this user would not.
doctor 1 "$dir"
line warn 'provider file' 'outside the search path of libfabric'
grep -q "export FI_PROVIDER_PATH=$provider" "$dir/out" ||
	fail "no remedy for the provider's folder"
line ok commit ''

FI_PROVIDER=tcp doctor 3 "$dir"
line FAIL FI_PROVIDER "'tcp' excludes ofi_rpmem"
line ok commit '' # the other checks still run
FI_PROVIDER=ofi_rpmem doctor 3 "$dir"
line FAIL FI_PROVIDER 'alone hides'
FI_PROVIDER=tcp,ofi_rpmem doctor 1 "$dir"
line warn FI_PROVIDER 'bare base'
# The base is missing, has no device, or is hidden by the filter.
FI_PROVIDER='nonsense;ofi_rpmem' doctor 3 "$dir"
line FAIL 'provider listed' "'nonsense;ofi_rpmem'"
line FAIL base "no provider 'nonsense'"
grep -q -- "-> .*FI_PROVIDER='tcp;ofi_rpmem'" "$dir/out" || fail "no remedy"
line FAIL commit 'not tried'
if [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
	FI_PROVIDER='verbs;ofi_rpmem' doctor 3 "$dir"
	line FAIL base "'verbs'"
	grep -q -- '-> .*ibv_devices' "$dir/out" || fail "no word of devices"
else
	echo "left out: there is an RDMA device"
fi
FI_PROVIDER='tcp;ofi_rxm;ofi_rpmem' doctor 3 "$dir"
line FAIL 'provider listed' "'tcp;ofi_rxm;ofi_rpmem'"
FI_PROVIDER='sockets;ofi_rpmem' doctor 1 "$dir"
line ok 'provider listed' 'sockets;ofi_rpmem'
line ok base sockets
line ok commit 'committed, .* over sockets'
# Without the addresses of peers a base cannot make private connections.
if fi_info -p 'udp;ofi_rxd' >/dev/null 2>&1; then
	FI_LOG_LEVEL=warn FI_PROVIDER='udp;ofi_rpmem' doctor 3 "$dir"
	line FAIL 'provider listed' "'udp;ofi_rpmem'"
	line FAIL commit 'not tried'
	grep -q 'ofi_rxd does not tell the addresses .*use tcp' "$dir/out" ||
		fail "no remedy for the base udp"
else
	echo "left out: libfabric has no udp"
fi
FI_TCP_IFACE=nosuch0 doctor 3 "$dir"
line FAIL interface nosuch0

FI_PROVIDER_PATH=$dir doctor 3 "$dir"
line FAIL 'provider file' 'FI_PROVIDER_PATH='
line FAIL commit 'not tried'
echo 'no library' >"$dir/librpmem-fi.so"
FI_PROVIDER_PATH=$dir doctor 3 "$dir"
line ok 'provider file' librpmem-fi.so
line FAIL 'provider loads' librpmem-fi.so
line FAIL 'provider listed' ''
rm "$dir/librpmem-fi.so"

doctor 3 /proc
line FAIL memory /proc
line FAIL commit /proc
if [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
	doctor 1 /dev/shm
	line warn memory 'class process'
	line ok commit 'class process'
fi

# A file of the user is examined, and not written to.
head -c 65536 /dev/zero >"$dir/file"
before=$(sha256sum "$dir/file")
timeout 60 util/fi_rpmem_info "$dir/file" >"$dir/out" 2>&1
code=$?
[ $code -eq 0 ] || fail "exit code $code of a plain file"
grep -q 'class  *power' "$dir/out" || fail "no class of a plain file"
doctor 3 "$dir/file"
line FAIL commit 'no commit is tried on a file'
[ "$(sha256sum "$dir/file")" = "$before" ] || fail "the file was written to"

timeout 60 util/fi_rpmem_info --json "$dir" >"$dir/out" 2>&1 ||
	fail "exit code of --json"
grep -q '"class": "power"' "$dir/out" || fail "no class in the JSON"
grep -q '"version": "0' "$dir/out" || fail "no provider in the JSON"

# The table of methods in the code is the documented one.
src=${srcdir:-.}
sed -n '/<!-- method table/,/<!-- end of method table/p' \
	"$src/docs/guarantees.md" | grep '^|' >"$dir/doc"
util/fi_rpmem_info --table >"$dir/out" || fail "exit code of --table"
cmp -s "$dir/doc" "$dir/out" || {
	diff "$dir/doc" "$dir/out"
	fail "--table and docs/guarantees.md differ"
}
[ "$(util/fi_rpmem_info --table --json | grep -c '"method"')" -eq \
	$(($(wc -l <"$dir/doc") - 2)) ] || fail "rows of --table --json"

# Every fact has its source; the operator's statements are printed and obeyed.
FI_OFI_RPMEM_OPERATOR=$dir/said
export FI_OFI_RPMEM_OPERATOR
info()
{
	timeout 60 util/fi_rpmem_info "$@" >"$dir/out" 2>&1
	code=$?
}
printf '[host]\nlimit class = process\n' >"$dir/said"
chmod 644 "$dir/said"
info "$dir"
grep -q '^  class  *process$' "$dir/out" || fail "a limit that is not kept"
grep -q "limited by $dir/said:2" "$dir/out" || fail "whose limit it is"
grep -q '^  better .*limit.*class power' "$dir/out" || fail "no way back"
FI_PROVIDER_PATH=$provider FI_PROVIDER='tcp;ofi_rpmem' doctor 1 "$dir"
line ok commit 'committed, class process'
printf '[path %s]\nassert fence = yes\n' "$(readlink -f "$dir")" >"$dir/said"
info "$dir"
grep -q '^  fence  *yes  *asserted by' "$dir/out" || fail "no assertion"
grep -q '^  asserted  *1 of these' "$dir/out" || fail "a raise is not shown"
info /dev/shm
grep -q 'asserted by' "$dir/out" && fail "an assertion about another path"
printf '[host]\nassert fense = yes\n' >"$dir/said"
info "$dir"
[ $code -eq 1 ] || fail "exit code $code of a wrong operator's file"
grep -q "said:2: 'fense' is none of" "$dir/out" || fail "no line is named"
FI_PROVIDER_PATH=$provider FI_PROVIDER='tcp;ofi_rpmem' doctor 3 "$dir"
line FAIL commit ''
chmod 666 "$dir/said"
info "$dir"
grep -q 'chmod go-w' "$dir/out" || fail "a file that anybody may write"
unset FI_OFI_RPMEM_OPERATOR

# A forced method is used if the memory allows it, otherwise none; both are
# shown.
force()
{
	FI_PROVIDER_PATH=$provider FI_PROVIDER='tcp;ofi_rpmem' \
		FI_OFI_RPMEM_METHOD=$1 FI_LOG_LEVEL=warn doctor "$2" "$dir"
}
force agent-msync 0
line ok commit 'committed, class power by agent-msync'
force fence 3
line FAIL memory 'FI_OFI_RPMEM_METHOD=fence makes nothing durable here'
line FAIL commit ''
force msync 3
line FAIL memory 'FI_OFI_RPMEM_METHOD=msync names no method'
force delivery 1
line warn memory 'class process'
line ok commit 'class process by delivery'
FI_OFI_RPMEM_METHOD=fence info "$dir"
[ $code -eq 1 ] || fail "exit code $code where nothing can be forced"
grep -q '^  method  *refused' "$dir/out" || fail "a method that is not allowed"
grep -q '^  forced .*=fence makes nothing durable here: memory is file' \
	"$dir/out" || fail "what forbids it"
grep -q '^  remedy  *Unset FI_OFI_RPMEM_METHOD' "$dir/out" || fail "no remedy"
grep -q '^  better .*Then: agent-msync, class power' "$dir/out" ||
	fail "no way back from what was forced"
FI_OFI_RPMEM_METHOD=delivery info "$dir"
grep -q '^  class  *process' "$dir/out" || fail "a class too high"
grep -q '^  forced  *by' "$dir/out" || fail "whose choice it is"
info --base verbs:none0 "$dir"
grep -q '^  placement  *unknown .*verbs on none0' "$dir/out" ||
	fail "a base that nothing is known of"
grep -q '^  method  *refused' "$dir/out" || fail "pages that nobody dirties"
info --base tcp
[ $code -eq 2 ] || fail "--base alone is wrong usage"

# No daemon listens at port 1 of loopback.
timeout 60 util/fi_rpmem_info --target 127.0.0.1:1:pool >"$dir/out" 2>&1
[ $? -eq 3 ] || fail "exit code without a daemon"
grep -q 'nothing listens on port 1 ' "$dir/out" || fail "no cause"
timeout 60 util/fi_rpmem_info --target 127.0.0.1 >"$dir/out" 2>&1
[ $? -eq 3 ] || fail "exit code without a daemon, without a pool"
timeout 60 util/fi_rpmem_info --target :pool >"$dir/out" 2>&1
[ $? -eq 2 ] || fail "exit code without a host"
grep -q 'does not begin with a host' "$dir/out" || fail "no remedy"

util/fi_rpmem_info --no-such-option >"$dir/out" 2>&1
[ $? -eq 2 ] || fail "wrong usage is not exit code 2"
exit $failed
