#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmemd offers a pool with the class that its region has now: a class that
# was lowered stays lowered after the fact is restored, until a restart.
set -u
dir=$(mktemp -d ./offer.XXXXXX) || exit 99
cd "$dir" || exit 99
daemon='' n=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
export FI_OFI_RPMEM_OPERATOR="$PWD/operator"

finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	cd .. && rm -rf "$dir"
}
trap finish EXIT

# state LINE...: write the operator's file, and replace it at once
state()
{
	printf '%s\n' "$@" >operator.new && mv operator.new operator
}

offered()
{
	../util/fi_rpmem_info --target "127.0.0.1:$(cat port)" | grep -q "^vol .* $1 "
}

# ok WHAT COMMAND...: the command must succeed
ok()
{
	what=$1 n=$((n + 1))
	shift
	if "$@"; then
		echo "ok $n - $what"
		return
	fi
	echo "not ok $n - $what"
	../util/fi_rpmem_info --target "127.0.0.1:$(cat port)"
	cat daemon.out
	exit 1
}

# soon COMMAND...: repeat the command for up to a minute
soon()
{
	for _ in $(seq 600); do
		"$@" && return
		sleep 0.1
	done
	return 1
}

state '# nothing'
FI_LOG_LEVEL=warn ../util/fi_rpmemd --port 0 --port-file port --create 1M vol \
	>daemon.out 2>&1 &
daemon=$!
until [ -e port ]; do
	if ! kill -0 $daemon 2>/dev/null; then
		cat daemon.out
		exit 1
	fi
	sleep 0.02
done
if ! grep -q '^vol .* power ' daemon.out; then
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
fi
ok "the class of the registration is offered" offered power
state '[host]' 'limit class = process'
ok "then the weaker class that the region has" soon offered process
state '# nothing again'
sleep 1
ok "also when the fact is strong again" offered process
ok "with the log's line" grep -q "class power .* has become process" daemon.out
echo "1..$n"
