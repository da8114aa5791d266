#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Databases on a remote pool, through power cuts: runs databases.py for each
# database, and for each control that must lose data. --long adds two kernels.
# usage: databases.sh --build DIR [--long]
set -u
cd "$(dirname "$0")" || exit 99
src=$(cd ../.. && pwd)
build= runs=1
while [ $# -gt 0 ]; do
	case $1 in
	--build) build=$2; shift ;;
	--long) runs=20 ;;
	*) echo "usage: databases.sh --build DIR [--long]" >&2; exit 2 ;;
	esac
	shift
done
FI_PROVIDER_PATH=$build/prov/rpmem/.libs
export FI_PROVIDER_PATH
passed=0 failed=0 skipped=0

# count STATUS OUTPUT NAME: print and count one test.
count() {
	echo "$2"
	if grep -q '# SKIP' <<<"$2"; then
		skipped=$((skipped + 1))
	elif [ "$1" = 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		grep -q '^not ok' <<<"$2" || echo "not ok - $3"
	fi
}

# try ARGUMENT...: run databases.py in separate namespaces, so that a killed run
# leaves no process and no mount, and nobody takes the port of a killed daemon.
net=--net
unshare --net true 2>/dev/null || net=
try() {
	local out

	# shellcheck disable=SC2086 # an option, or none
	out=$(unshare $net --mount --pid --fork --kill-child --mount-proc \
		sh -c 'ip link set lo up; exec "$@"' - \
		/usr/bin/python3 databases.py --build "$build" "$@" 2>&1)
	count $? "$out" "databases.py $*"
}

for db in sqlite postgres redis etcd; do
	for _ in $(seq $runs); do
		try --cuts 5 $db
	done
done
for db in sqlite postgres redis etcd; do
	try --cuts 1 --control no-fsync $db
done
if [ $runs -gt 1 ]; then
	for db in sqlite postgres redis etcd; do
		try --cuts 20 --fs xfs $db
	done
	try --cuts 1 --control skip-flush sqlite
	try --cuts 1 --fs xfs --control skip-flush redis
	try --cuts 2 --fs xfs --control no-replay sqlite
else
	try --cuts 2 --fs xfs redis
fi
for control in flush-ignored flush-of-own-writes; do
	try --cuts 1 --control $control sqlite
done
try --cuts 2 --control no-replay sqlite
# try_group ARGUMENT...: run group_databases.py in a separate network namespace.
try_group() {
	local out

	out=$(unshare --net --mount --pid --fork --kill-child --mount-proc \
		/usr/bin/python3 group_databases.py --build "$build" "$@" 2>&1)
	count $? "$out" "group_databases.py $*"
}
if [ -n "$net" ]; then
	try_group --rounds $((runs == 1 ? 3 : 100))
	for control in share ack-at-1; do
		[ $runs = 1 ] || try_group --control $control
	done
else
	count 0 "ok - PostgreSQL on a group # SKIP no network namespace can be made here"
fi
out=$(cd "$build" && srcdir=$src sh "$src/fabtests/integration/storage_recipes.sh" 2>&1)
status=$?
sed 's/^SKIP: /ok - the commands of docs\/storage.md # SKIP /' <<<"$out" >"$build/recipes.out"
while read -r line; do
	case $line in
	'not ok '*) count 1 "$line" ;;
	'ok '*) count 0 "$line" ;;
	*) echo "$line" ;;
	esac
done <"$build/recipes.out"
[ $status = 0 ] || [ $status = 77 ] || grep -q '^not ok' "$build/recipes.out" ||
	count 1 "# the script has ended with status $status" "the commands of docs/storage.md"
if [ $runs -gt 1 ]; then
	for control in "" --control; do
		# shellcheck disable=SC2086 # an option, or none
		out=$(./nbd_kernels.sh --build "$build" --cuts 10 $control 2>&1)
		count $? "$out" "nbd_kernels.sh $control"
	done
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
