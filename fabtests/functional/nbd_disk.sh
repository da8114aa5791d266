# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh
# Sourced by suites of nbdkit's rpmem plugin, behind `enter`: what they need, a
# disk, and its end.
server=
plugin=${RP_NBD_PLUGIN:-$top/util/.libs/nbdkit-rpmem-plugin.so}
uri="nbd+unix:///?socket=$PWD/sock"

skip()
{
	echo "SKIP: $*"
	exit 77
}

[ -e "$plugin" ] || skip "built without nbdkit; on Debian: apt-get install nbdkit-plugin-dev"
# A sanitizer's runtime has to be the first library of a program.
[ -z "${RP_SANITIZE:-}" ] || skip "nbdkit is not built with the sanitizer"
for tool in nbdkit nbdinfo nbdcopy; do
	command -v $tool >/dev/null ||
		skip "$tool is missing; on Debian: apt-get install nbdkit libnbd-bin"
done
/usr/bin/python3 -c 'import nbd' 2>/dev/null ||
	skip "on Debian: apt-get install python3-libnbd"

# With a planted bug (nbd_planted.py) the first failure tells enough.
if [ -n "${RP_NBD_PLUGIN:-}" ]; then
	fail()
	{
		echo "FAIL: $*"
		exit 1
	}
fi

# export_pool ARG...: start nbdkit with the plugin; return once it serves
export_pool()
{
	rm -f sock
	nbdkit -f -U "$PWD/sock" "$plugin" \
		target=127.0.0.1:"$port" pool=vol "$@" 2>nbdkit.out &
	server=$!
	pids="$pids $server"
	for _ in $(seq 400); do
		nbdinfo --size "$uri" >/dev/null 2>&1 && return
		kill -0 $server 2>/dev/null || break
		sleep 0.05
	done
	fail "nbdkit"
	cat nbdkit.out
	exit 1
}

stop_export()
{
	kill $server
	wait $server
	server=
}

# refuses TEXT ARG...: nbdkit ends, and its message has this text: in the
# foreground, and before it goes into the background.
refuses()
{
	text=$1
	shift
	for how in -f "--pidfile=$PWD/no.pid"; do
		rm -f no no.pid
		timeout 60 nbdkit "$how" -U "$PWD/no" "$plugin" "$@" >out 2>&1 &&
			fail "nbdkit $how $* serves"
		grep -q -- "$text" out ||
			{ fail "nbdkit $how: no '$text':"; cat out; }
	done
	[ ! -e no.pid ] || kill "$(cat no.pid)"
}

# serve_safe [SIZE]: create the pool vol of 8 MiB, or SIZE, and serve it, with
# vol.safe.
serve_safe()
{
	: >daemon.out
	truncate -s 0 vol.safe
	serve_vol --create "${1:-8M}"
	skip_without_disk vol daemon.out
	stop
	cp vol vol.safe
	serve_vol
}
