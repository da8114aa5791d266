#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Inside the root: builds, and runs the tests that must pass there. See
# chroot.sh.
#
# usage: tests.sh [--long]
set -u -o pipefail

long=${1:+1}
passed=0 failed=0 skipped=0
# shellcheck source=fabtests/tally.sh
. /src/fabtests/tally.sh
# shellcheck source=util/trust.sh
. /src/util/trust.sh

finish() {
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
	exit
}

ok() {
	echo "ok - $*"
	passed=$((passed + 1))
}

skip() { # WHAT WHY
	echo "ok - $1 # SKIP $2"
	skipped=$((skipped + 1))
}

not_ok() { # WHAT [LOG]
	echo "not ok - $1"
	failed=$((failed + 1))
	[ -z "${2:-}" ] || tail -40 "$2"
}

# step NAME COMMAND...: a step that all others need
step() {
	local name=$1 start=$SECONDS

	shift
	if "$@" >step.log 2>&1; then
		ok "$name ($((SECONDS - start)) s)"
	else
		not_ok "$name" step.log
		finish
	fi
}

# shellcheck disable=SC2317
configured() {
	[ config.status -nt /src/configure ] ||
		# Warnings matter only for the compiler that the project is
		# developed with.
		CONFIG_SHELL=/bin/dash /src/configure -q --disable-werror CFLAGS='-O2 -g1'
}

echo "# libfabric $(pkg-config --modversion libfabric)," \
	"rdma-core $(dpkg-query -W -f '${Version}' libibverbs-dev)," \
	"$(gcc --version | head -1)"
step "configure" configured
step "build" make -s -j2
step "build tests" make -s -j2 check TESTS=
trust_folder util/fi_rpmem_info . || { not_ok "nothing is durable in $PWD"; finish; }

# Without --long: tests of one behaviour each, and of bad input.
chosen() {
	local t

	# shellcheck disable=SC2016
	for t in $(printf 'include Makefile\nplatform_tests: ; @echo $(TESTS)\n' |
		make -s -f - platform_tests); do
		case $t in
		# Tests that read the sources ran elsewhere; their tools are not
		# here.
		fabtests/fuzz/* | fabtests/mutation/* | */includes.sh) continue ;;
		esac
		case $t in
		*crash* | */scale.sh | */valgrind.sh | */bench* | */faults.sh | \
			*/powercut* | */cp_power.sh | */machines | */upstream.sh | \
			fabtests/integration/*)
			[ -n "$long" ] || continue
			;;
		esac
		echo "$t"
	done
}

run_tests() {
	local t p f s start=$SECONDS

	find . -name '*.trs' -delete
	RP_LONG=0 make -s -j2 -k check TESTS="$(chosen | tr '\n' ' ')" >check.log 2>&1
	for t in $(chosen); do
		p=0 f=1 s=0
		[ ! -e "$t.trs" ] || tally "$t"
		printf '%-44s %5d passed %4d failed %4d skipped\n' "$t" "$p" "$f" "$s"
		passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
		[ "$f" = 0 ] || { echo "not ok - $t"; tail -60 "$t.log"; }
		[ "$s" = 0 ] || grep -aE '# SKIP|^SKIP' "$t.log" | sed 's/^SKIP:/# SKIP/' |
			head -3
	done
	echo "# tests took $((SECONDS - start)) s"
}
run_tests

export FI_TCP_IFACE=lo FI_SOCKETS_IFACE=lo

# The provider built for this machine's libfabric loads here and passes, with
# programs of this root, which use a newer interface.
host_built() {
	local dso=/host/prov/rpmem/.libs/librpmem-fi.so t code

	FI_PROVIDER_PATH=${dso%/*} fi_info -p 'tcp;ofi_rpmem' >host.log 2>&1
	if grep -q '^provider: tcp;ofi_rpmem$' host.log &&
		! FI_PROVIDER_PATH=/nowhere fi_info -p 'tcp;ofi_rpmem' \
			>/dev/null 2>&1 &&
		! cmp -s $dso prov/rpmem/.libs/librpmem-fi.so; then
		ok "built on the host: it is what is loaded"
	else
		not_ok "built on the host: it is what is loaded" host.log
	fi
	export FI_PROVIDER_PATH=${dso%/*}
	# Two at a time: tests wait more than they compute.
	printf '%s\n' functional/basic functional/connected functional/regions \
		functional/downgrade functional/atomic functional/direct \
		functional/effects functional/inline functional/threads \
		functional/poll functional/roles fault/badinput fault/badatomic \
		fault/hostile fault/false_target fault/death |
		xargs -P 2 -I{} sh -c 'timeout 300 "fabtests/$1" >"host.${1#*/}" 2>&1
			echo "$? $1"' one {} >host.said
	while read -r code t; do
		if [ "$code" = 0 ]; then
			ok "built on the host: $t"
		else
			not_ok "built on the host: $t" "host.${t#*/}"
		fi
	done <host.said
	unset FI_PROVIDER_PATH
}
host_built

# Upstream's tests that the provider loses.
upstream() {
	[ -x /fabtests/bin/runfabtests.sh ] ||
		{ skip "upstream's fabtests" "--fabtests does not say where"; return; }
	export FI_PROVIDER_PATH=$PWD/prov/rpmem/.libs
	if /src/fabtests/upstream.sh --prefix /fabtests --set quick >quick.log 2>&1; then
		ok "upstream, quick: $(tail -1 quick.log)"
	else
		not_ok "upstream, quick" quick.log
	fi
	# Connected endpoints of the provider, not of the base.
	if FI_OFI_RPMEM_COMMIT_WRITES=1 /src/fabtests/upstream.sh --prefix /fabtests \
		--set functional,short --test msg >msg.log 2>&1; then
		ok "upstream, connected: $(tail -1 msg.log)"
	else
		not_ok "upstream, connected" msg.log
	fi
}
upstream
finish
