#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# fio measures, in turns, the block device on a pool and nbdkit's file plugin on
# a file of the same disk; prints medians and their ratios. "remote" is the same
# file served by a second nbdkit over TCP: as many hops as the pool has.
# usage: fabtests/benchmarks/nbd.sh --build DIR [--rounds N] [--seconds N]
set -u
rounds=5 seconds=3 takes="rounds seconds"
# shellcheck source=fabtests/benchmarks/options.sh
. "$(dirname "$0")/options.sh"
for tool in nbdkit nbdinfo fio python3; do
	command -v $tool >/dev/null || { echo "nbd.sh: $tool is missing" >&2; exit 2; }
done
export FI_TCP_IFACE=lo FI_PROVIDER_PATH=$build/prov/rpmem/.libs
dir=$(mktemp -d "$build/nbdbench.XXXXXX") || exit 99
cd "$dir" || exit 99
daemon= pids=
finish() {
	for p in $pids $daemon; do
		kill "$p" 2>/dev/null && wait "$p" 2>/dev/null
	done
	cd / && rm -rf "$dir"
}
trap finish EXIT

"$build/util/fi_rpmemd" --create 512M --port 0 --port-file port vol >daemon.out 2>&1 &
daemon=$!
until [ -s port ]; do
	kill -0 $daemon 2>/dev/null || { cat daemon.out; exit 1; }
	sleep 0.05
done
fallocate -l 512M file
nbdkit -f -U "$dir/rpmem.sock" "$build/util/.libs/nbdkit-rpmem-plugin.so" \
	target=127.0.0.1:"$(cat port)" pool=vol 2>rpmem.log &
pids=$!
nbdkit -f -U "$dir/file.sock" file "$dir/file" 2>file.log &
pids="$pids $!"
remote=$(python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
nbdkit -f -i 127.0.0.1 -p "$remote" file "$dir/file" 2>far.log &
pids="$pids $!"
until nbdinfo --size "nbd://127.0.0.1:$remote" >/dev/null 2>&1; do
	sleep 0.05
done
nbdkit -f -U "$dir/remote.sock" nbd uri="nbd://127.0.0.1:$remote" 2>remote.log &
pids="$pids $!"
for server in rpmem file remote; do
	until nbdinfo --size "nbd+unix:///?socket=$dir/$server.sock" >/dev/null 2>&1; do
		sleep 0.05
	done
done

# run SERVER NAME FIO-OPTION...: prints NAME, SERVER and the operations a
# second; with --fsync=1 an operation is a write and its fsync.
run() {
	local server=$1 name=$2

	shift 2
	fio --name=x --ioengine=nbd --uri="nbd+unix:///?socket=$dir/$server.sock" \
		--size=256M --time_based --runtime="$seconds" --randrepeat=0 \
		--output-format=json --output=fio.json "$@" >fio.err 2>&1 ||
		{ cat fio.err >&2; exit 1; }
	python3 - "$name" "$server" <<'P'
import json
import sys

job = json.loads("{" + open("fio.json", encoding="utf-8").read().partition("{")[2])["jobs"][0]
print(*sys.argv[1:], job["write"]["iops"] + job["read"]["iops"])
P
}

for _ in $(seq "$rounds"); do
	for server in rpmem file remote; do
		run $server fsync --rw=randwrite --bs=4k --iodepth=1 --fsync=1
		run $server random --rw=randwrite --bs=4k --iodepth=32
		run $server randread --rw=randread --bs=4k --iodepth=32
		run $server write --rw=write --bs=1m --iodepth=4
		run $server read --rw=read --bs=1m --iodepth=4
	done
done | tee results
echo "plugin: $(ps -o cputime=,rss= -p "${pids%% *}" | awk '{ print $1, "CPU,", int($2 / 1024), "MiB" }')"
python3 - <<'P'
import statistics

got = {}
for line in open("results", encoding="ascii"):
    name, server, value = line.split()
    got.setdefault(name, {}).setdefault(server, []).append(float(value))
for name, v in got.items():
    a, b, c = (statistics.median(v[s]) for s in ("rpmem", "file", "remote"))
    print(f"{name:9} pool {a:9.0f}/s  file {b:9.0f}/s  remote {c:9.0f}/s"
          f"  pool/file {a / b:5.2f}  pool/remote {a / c:5.2f}"
          + (f"  nbd_fsync_vs_file {b / a:5.2f}" if name == "fsync" else "")
          + (f"  nbd_iops_vs_file {a / b:5.2f}" if name == "random" else ""))
P
