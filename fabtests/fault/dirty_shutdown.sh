#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A pool on memory that counts dirty shutdowns, according to a simulated sysfs.
# fi_rpmemd refuses the pool if the count has grown while the pool was open,
# until an operator accepts the loss. A pool that was closed is served.
set -u
dir=$(mktemp -d ./dirtyshutdown.XXXXXX) || exit 99
cd "$dir" || exit 99
daemon='' n=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
src=${srcdir:-.}
case $src in /*) ;; *) src=../$src ;; esac
# shellcheck source=util/trust.sh
. "$src/util/trust.sh"
trust_folder ../util/fi_rpmem_info . >trust.out || { cat trust.out; exit 77; }

finish()
{
	[ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null
	cd .. && rm -rf "$dir"
}
trap finish EXIT

# ok WHAT COMMAND...
ok()
{
	what=$1 n=$((n + 1))
	shift
	if "$@"; then
		echo "ok $n - $what"
		return
	fi
	echo "not ok $n - $what"
	cat daemon.out
	exit 1
}

# In the simulated sysfs the file is on persistent memory of one DIMM.
mkdir -p sys/proc/self sys/sys/dev/block sys/sys/bus0/nmem0/nfit
region=sys/sys/bus0/region0
mkdir -p $region/namespace0.0/block/pmem0
echo nmem0,0,4096,0 >$region/mapping0
echo cdab-0a-07e0-ffffffff >sys/sys/bus0/nmem0/nfit/id
echo 1 >$region/deep_flush
ln -s ../../bus0/region0/namespace0.0/block/pmem0 sys/sys/dev/block/259:0
: >daemon.out
id=$(sed -n 's/^mnt_id:[^0-9]*//p' /proc/self/fdinfo/9 9<daemon.out)
echo "$id 1 259:0 / / rw - ext4 /dev/pmem0 rw" >sys/proc/self/mountinfo
shut_down()
{
	echo "$1" >sys/sys/bus0/nmem0/nfit/dirty_shutdown
}

fi_rpmemd()
{
	RPMEM_FAULT=invented-sys RPMEM_FAULT_SYS=sys \
		exec ../fabtests/fault/fi_rpmemd_faults "$@"
}

# serve [OPTION...]: succeeds if clients can connect; else $code is the exit
# code.
serve()
{
	rm -f port
	(fi_rpmemd --port 0 --port-file port "$@" vol) >daemon.out 2>&1 &
	daemon=$!
	until [ -e port ]; do
		if ! kill -0 $daemon 2>/dev/null; then
			wait $daemon
			code=$? daemon=''
			return 1
		fi
		sleep 0.02
	done
}

crash()
{
	kill -9 $daemon
	wait $daemon 2>/dev/null
}

stop()
{
	kill $daemon
	wait $daemon || return
	daemon=''
}

# refused_for SIGNS: in one line
refused_for()
{
	! serve && [ "$code" -eq 8 ] && [ "$(grep -c . daemon.out)" -eq 1 ] &&
		grep -q "pool 'vol' may have lost acknowledged bytes: .*($1); .*fi_rpmemd --accept-loss 'vol'" \
			daemon.out
}

is_refused()
{
	refused_for 'dirty shutdowns: 5 when it was opened, 6 now'
}

names_both()
{
	grep -q "pool 'vol' may have lost acknowledged bytes: .*--accept-loss 'vol'" daemon.out &&
		grep -q '^beside  *1 MiB' daemon.out && ! grep -q '^vol ' daemon.out &&
		grep -q 'pools named above are not exported' daemon.out
}

accepts()
{
	(fi_rpmemd --accept-loss vol) >daemon.out 2>&1 &&
		grep -q "pool 'vol' $1" daemon.out
}

shut_down 5
ok "a pool is made" serve --create 1M
crash
ok "a killed daemon alone is no loss" serve
crash
shut_down 6
ok "a dirty shutdown under an open pool is refused in one line" is_refused
ok "at each start" is_refused
ok "a pool beside it is served" serve --create 1M beside
ok "and the refused one is named" names_both
ok "SIGTERM closes the served one" stop
ok "its loss is accepted" accepts 'is accepted with its loss'
ok "and served then" serve
ok "SIGTERM closes it" stop
shut_down 7
ok "a dirty shutdown under a closed pool is no loss" serve
ok "SIGTERM closes it" stop
ok "nothing is left to accept" accepts 'has no loss to accept'

ok "it is served again" serve
crash
echo 'save_fail smart_event' >sys/sys/bus0/nmem0/nfit/flags
ok "a DIMM that could not save under an open pool is refused" \
	refused_for 'flags of nmem0: save_fail'
ok "its loss is accepted" accepts 'is accepted with its loss'
ok "and served then" serve
crash
ok "the accepted flag alone is no loss" serve
ok "SIGTERM closes it" stop
echo 0 >$region/deep_flush
shut_down 8
ok "a dirty shutdown under a closed pool is refused where no flush reaches the media" \
	refused_for 'dirty shutdowns: 7 when it was opened, 8 now'
ok "its loss is accepted" accepts 'is accepted with its loss'
ok "and served then" serve
ok "SIGTERM closes it" stop
echo "1..$n"
