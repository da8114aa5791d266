#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# nbdcopy of 160 MiB to nbdkit's rpmem plugin and back, through a power cut of the
# target in the middle of each copy. Without a FLUSH at most 64 MiB of completed
# writes are not durable: more are committed early. With RP_LONG=1 the same of 1 GiB,
# where the daemon is killed, without the shadow library.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter nbd_copy
# shellcheck source=fabtests/functional/nbd_disk.sh
. "$src/fabtests/functional/nbd_disk.sh"
mib=160

# differs FILE BYTES: print how many MiB of image differ from FILE behind BYTES, by
# pages, rounded up.
differs()
{
	/usr/bin/python3 - "$@" <<'P'
import sys

count = 0
with open("image", "rb") as image, open(sys.argv[1], "rb") as other:
    other.seek(int(sys.argv[2]))
    while page := image.read(4096):
        count += page != other.read(4096)
print(-(-count // 256))
P
}

# half_way: copy standard input to output; stop at the half until the power is cut.
half_way()
{
	head -c $((mib << 19))
	: >half
	until [ -e is_cut ]; do
		sleep 0.01
	done
	cat
}

# cut_amid PID: cut the power when half_way is at the half; wait for the process.
cut_amid()
{
	pids="$pids $1"
	while [ ! -e half ] && kill -0 "$1" 2>/dev/null; do
		sleep 0.01
	done
	: >is_cut
	cut_power
	serve_vol
	wait "$1" || fail "nbdcopy: $(cat copy.out)"
	rm half is_cut || fail "nothing was cut"
}

write_disk()
{
	head -c ${mib}M /dev/urandom >image
	half_way <image | nbdcopy - "$uri" 2>copy.out &
	cut_amid $!
}

read_disk()
{
	(nbdcopy "$uri" - 2>copy.out && : >all_read) | half_way >back &
	cut_amid $!
	rm all_read || fail "nbdcopy: $(cat copy.out)"
	cmp image back || fail "what comes back differs"
}

serve_safe ${mib}M
export_pool
write_disk
lacks=$(differs vol.safe 65536)
[ "$lacks" -gt 0 ] || fail "all is durable without a FLUSH: nothing was tested"
[ "$lacks" -le 64 ] || fail "$lacks MiB are not durable; the limit is 64"
/usr/bin/python3 -c '
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.flush()' "$uri" || fail "FLUSH"
[ "$(differs vol.safe 65536)" = 0 ] || fail "FLUSH does not cover the copy"
read_disk
stop_export
[ "${RP_LONG:-0}" = 1 ] || exit $failed

serve_vol()
{
	launch daemon.out ready --port "$port" "$@" vol
}

cut_power()
{
	kill -9 $daemon
	wait $daemon 2>/dev/null
}

stop
rm vol vol.safe
mib=1024
serve_vol --create ${mib}M
export_pool
write_disk
read_disk
stop_export
exit $failed
