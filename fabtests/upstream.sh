#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs an installed upstream fabtests on a base and on ofi_rpmem over it.
set -u -o pipefail

usage() {
	cat <<'U'
usage: fabtests/upstream.sh --prefix DIR [--base NAME] [--set NAME[,NAME...]]
                        [--test TEXT] [--timeout SECONDS] [--json FILE]
                        [--keep DIR]

Runs each test of the fabtests installed in DIR, which must belong to the
libfabric in use, on the base provider and on base;ofi_rpmem, and prints what is
lost: passed on the base, and not on ofi_rpmem over it. Client and server are
processes of this machine, at a loopback address and port of their own; no ssh.

  --prefix DIR   where fabtests is installed (DIR/bin/runfabtests.sh has the list)
  --base NAME    the base: tcp (default), sockets, ...
  --set NAME     upstream's sets: quick (default), unit, functional, short,
                 standard, regression, all; comma separated
  --test TEXT    only tests whose command contains TEXT
  --timeout S    for one test on one provider (default 120)
  --json FILE    the results as JSON too
  --keep DIR     keep the output of each client and server there (default: a
                 folder for this run, removed when nothing is lost)

FI_PROVIDER_PATH says where ofi_rpmem is if it is not installed.

A test passes, fails, runs out of time, or has none: both sides said that the
provider does not offer what it needs. ofi_rpmem layers over FI_EP_RDM only; lost
tests of other endpoints are lost like any other, and also counted apart.

The exit status is 0 when nothing is lost, 1 when something is, 2 when the run
says nothing (wrong arguments, or the base or ofi_rpmem passes no test at all).
U
}

die() {
	echo "upstream.sh: $*" >&2
	exit 2
}

prefix='' base=tcp sets=quick only='' limit=120 json='' keep=''
while [ $# -gt 0 ]; do
	case $1 in
	-h | --help) usage; exit 0 ;;
	--prefix | --base | --set | --test | --timeout | --json | --keep)
		[ $# -ge 2 ] || die "$1 needs a value"
		case $1 in
		--prefix) prefix=$2 ;;
		--base) base=$2 ;;
		--set) sets=$2 ;;
		--test) only=$2 ;;
		--timeout) limit=$2 ;;
		--json) json=$2 ;;
		--keep) keep=$2 ;;
		esac
		shift ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
[ -n "$prefix" ] || die "--prefix says where fabtests is installed"
list=$prefix/bin/runfabtests.sh
[ -r "$list" ] || die "$list does not exist"
case $limit in
'' | *[!0-9]* | 0) die "--timeout $limit: whole seconds, at least 1" ;;
esac

# Exit statuses by which upstream reports an unsupported feature.
readonly ENODATA=61 ENOSYS=38

ours="$base;ofi_rpmem"
made=''
if [ -n "$keep" ]; then
	mkdir -p "$keep" || exit 2
else
	keep=$(mktemp -d) || exit 2
	made=1
fi
export FI_TCP_IFACE=${FI_TCP_IFACE:-lo} FI_SOCKETS_IFACE=${FI_SOCKETS_IFACE:-lo}
# This script selects the provider for each run.
unset FI_PROVIDER

server='' client=''
# shellcheck disable=SC2317
# timeout forwards TERM to its child, and kills it a little later.
stop() {
	[ -z "$client" ] || kill "$client" 2>/dev/null
	[ -z "$server" ] || kill "$server" 2>/dev/null
}
trap 'stop; exit 130' INT TERM

# tests_in ARRAY: print upstream's list, one test per line.
tests_in() {
	sed -n "/^$1_tests=(/,/^)/s/^[[:space:]]*\"\([^\"]*\)\".*/\1/p" "$list"
}

# listening PORT: whether a socket uses the port. State 0A is LISTEN, 07 an
# unconnected UDP socket.
listening() {
	local hex

	hex=$(printf ':%04X ' "$1")
	cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/udp6 2>/dev/null |
		grep -qE "^ *[0-9]+: [0-9A-F]+$hex"
}

# Tests with an out-of-band connection use a fixed port, so each test gets a
# separate address: all of 127/8 is loopback.
test_address() {
	echo "127.$((1 + RANDOM % 254)).$((RANDOM % 256)).$((1 + RANDOM % 254))"
}

# free_port: print a free port below the ephemeral range, which no connection
# takes by chance.
free_port() {
	local p

	for _ in {1..100}; do
		p=$((12000 + RANDOM % 18000))
		listening "$p" || break
	done
	echo "$p"
}

# takes_port BINARY: whether the test has -B. Tests without client and server do
# not.
declare -A port_known
takes_port() {
	[ -n "${port_known[$1]:-}" ] ||
		port_known[$1]=$("$prefix/bin/$1" -h 2>&1 | grep -c -- '-B <')
	[ "${port_known[$1]}" != 0 ]
}

# outcome STATUS...: print the outcome for the exit statuses of the processes of
# a test.
outcome() {
	local s same=1 word='pass'

	for s in "$@"; do
		[ "$s" = 0 ] || [ "$word" = 'time' ] || word='fail'
		[ "$s" != 124 ] && [ "$s" != 137 ] || word='time'
		[ "$s" = "$1" ] || same=
	done
	case $1 in
	"$ENODATA" | "$ENOSYS") [ -z "$same" ] || word=none ;;
	esac
	echo "$word"
}

# run_one LOG PROVIDER TEST: run a test of one process.
run_one() {
	local log=$1 prov=$2 args s

	read -ra args <<<"${3//SERVER_ADDR/127.0.0.1}"
	args=("${args[@]//GOOD_ADDR/127.0.0.1}")
	timeout -k 5 "$limit" "$prefix/bin/${args[0]}" "${args[@]:1}" -p "$prov" \
		>"$log.out" 2>&1 </dev/null &
	server=$!
	wait "$server"
	s=$?
	server=''
	result=$(outcome "$s")
}

# run_refused LOG PROVIDER TEST: run a test that passes when fi_getinfo() finds
# no match.
run_refused() {
	run_one "$1" "$2" "$3"
	case $result in
	none) result=pass ;;
	pass) result=fail ;;
	esac
}

# run_pair LOG PROVIDER TEST: run a test of a server and a client.
run_pair() {
	local log=$1 prov=$2 args sport=() cport=() addr port s c

	read -ra args <<<"$3"
	addr=$(test_address)
	port=$(free_port)
	if takes_port "${args[0]}"; then
		sport=(-B "$port") cport=(-P "$port")
	fi
	timeout -k 5 "$limit" "$prefix/bin/${args[0]}" "${args[@]:1}" -p "$prov" \
		"${sport[@]}" -s "$addr" >"$log.server" 2>&1 </dev/null &
	server=$!
	for _ in {1..20}; do
		[ ${#sport[@]} = 0 ] || ! listening "$port" || break
		kill -0 "$server" 2>/dev/null || break
		sleep 0.05
	done
	# The server has the port; the rest of its start is not visible from
	# here.
	sleep 0.2
	timeout -k 5 "$limit" "$prefix/bin/${args[0]}" "${args[@]:1}" -p "$prov" \
		-s "$addr" "${cport[@]}" "$addr" >"$log.client" 2>&1 </dev/null &
	client=$!
	wait "$client"
	c=$?
	client=''
	if [ "$c" != 0 ]; then
		# No client will connect any more: give the server time to print
		# errors.
		for _ in {1..20}; do
			kill -0 "$server" 2>/dev/null || break
			sleep 0.1
		done
		kill "$server" 2>/dev/null
	fi
	wait "$server"
	s=$?
	server=''
	# A server that kill ended counts as failed.
	[ "$s" != 143 ] || s=1
	result=$(outcome "$s" "$c")
}

# run KIND LOG PROVIDER TEST: run a test and set $result.
run() {
	case $1 in
	one) run_one "$2" "$3" "$4" ;;
	refused) run_refused "$2" "$3" "$4" ;;
	pair) run_pair "$2" "$3" "$4" ;;
	esac
}

# not_rdm TEST: whether the test uses another endpoint type than FI_EP_RDM, by
# its name or by -e.
not_rdm() {
	case $1 in
	fi_msg_inject*) return 1 ;; # a message on any endpoint, FI_EP_RDM unless -e
	fi_msg | fi_msg[\ _]* | fi_dgram* | fi_cm_data*) return 0 ;;
	*'-e msg'* | *'-e dgram'*) return 0 ;;
	esac
	return 1
}

# compare KIND TEST: run the test on both providers, print a line.
declare -A count
rows='' lost=() others=0 n=0
compare() {
	local kind=$1 test=$2 on_base on_ours log diff=''

	[ -z "$only" ] || [[ $test == *"$only"* ]] || return
	n=$((n + 1))
	log=$keep/$(printf '%03d-%s' $n "${test//[^A-Za-z0-9]/_}")
	# Discard the shell's messages about killed jobs.
	run "$kind" "$log.base" "$base" "$test" 2>/dev/null
	on_base=$result
	run "$kind" "$log.ours" "$ours" "$test" 2>/dev/null
	on_ours=$result
	case $on_base-$on_ours in
	pass-pass) ;;
	pass-*)
		diff=lost
		lost+=("$test")
		! not_rdm "$test" || others=$((others + 1)) ;;
	*-pass) diff=gained ;;
	esac
	count[base-$on_base]=$((${count[base-$on_base]:-0} + 1))
	count[ours-$on_ours]=$((${count[ours-$on_ours]:-0} + 1))
	printf '%-54s %-8s %-8s %s\n' "$test" "$on_base" "$on_ours" "$diff"
	rows+="${rows:+,
}    {\"test\": \"$test\", \"base\": \"$on_base\", \"ours\": \"$on_ours\"}"
}

# run_set SET
run_set() {
	local kind=pair test tests part

	case $1 in
	quick) for part in unit functional short; do run_set $part; done; return ;;
	all)
		for part in unit regression functional standard; do
			run_set $part
		done
		return ;;
	unit | regression | neg_unit) kind=one ;;
	functional | short | standard) ;;
	*) die "unknown set $1" ;;
	esac
	[ "$1" != neg_unit ] || kind=refused
	tests=$(tests_in "$1")
	[ -n "$tests" ] || die "$list has no ${1}_tests"
	while read -r test; do
		compare $kind "$test"
	done <<<"$tests"
	[ "$1" != unit ] || run_set neg_unit
}

# tally base|ours: print one line of sums
tally() {
	local word

	for word in pass none fail time; do
		printf ' %s %s' "$word" "${count[$1-$word]:-0}"
	done
}

printf '%-54s %-8s %s\n' test "$base" ";ofi_rpmem"
for set in ${sets//,/ }; do
	run_set "$set"
done
[ $n -gt 0 ] || die "no test has '$only' in it"
echo
printf '%-20s%s\n' "$base" "$(tally base)" "$ours" "$(tally ours)"
if [ -n "$json" ]; then
	printf '{\n  "base": "%s",\n  "sets": "%s",\n  "passed_base": %d,\n' \
		"$base" "$sets" "${count[base-pass]:-0}" >"$json" || exit 2
	printf '  "passed_ours": %d,\n  "lost": %d,\n  "lost_not_rdm": %d,\n' \
		"${count[ours-pass]:-0}" ${#lost[@]} $others >>"$json"
	printf '  "tests": [\n%s\n  ]\n}\n' "$rows" >>"$json"
fi
echo "lost: ${#lost[@]}, of which $others are of other endpoints than FI_EP_RDM"
[ ${#lost[@]} = 0 ] || printf '  %s\n' "${lost[@]}"
status=0
if [ "${count[base-pass]:-0}" = 0 ]; then
	echo "$base passes no test, so there is nothing to compare"
	status=2
elif [ ${#lost[@]} != 0 ]; then
	status=1
fi
if [ -n "$made" ] && [ $status = 0 ]; then
	rm -rf "$keep"
else
	echo "output of each client and server: $keep"
fi
exit $status
