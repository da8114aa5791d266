#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs ycsb.c with the example kv_server, in the build folder, and draws its
# tables by gnuplot: ycsb.svg, pagerank.svg and recovery.svg.
# usage: plot.sh OUT FOLDER power|process [ROUNDS [OPERATIONS]]
# The server's files are made in FOLDER. A table that is in OUT already is
# drawn, and not measured again.
set -eu
[ $# -ge 3 ] || { sed -n '3,7s/^# //p' "$0"; exit 2; }
src=$(cd "$(dirname "$0")/../.." && pwd)
out=$1 class=$3 rounds=${4:-11} operations=${5:-1000}
mkdir -p "$out"
work=$(mktemp -d "$2/kv.XXXXXX")
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH="$PWD/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export FI_TCP_IFACE=lo FI_PROVIDER_PATH="$PWD/prov/rpmem/.libs"

# shellcheck disable=SC2086 # flags are lists
${CC:-cc} ${CFLAGS:--O2} -I"$src/include" -o "$work/kv_server" \
	"$src/docs/examples/kv_server.c" -Lutil/.libs -lrpmem_rpc -llmdb

# measure JOB [ARGUMENT...]
measure()
{
	job=$1
	shift
	[ ! -s "$out/$job.txt" ] || return 0
	{
		echo "# $(date -u +%Y-%m-%dT%H:%MZ), load $(cut -d ' ' -f 1-3 /proc/loadavg)"
		fabtests/benchmarks/ycsb "$work/kv_server" "$work/$job" "$class" "$job" "$@"
	} >"$out/$job.part"
	mv "$out/$job.part" "$out/$job.txt"
	rm -f "$work/$job".*
}

measure ycsb ABCDEF "$rounds" "$operations"
measure pagerank wordassociation,enron,dblp 1
measure recovery 3 1000

# draw JOB YLABEL COLUMN...
draw()
{
	job=$1 ylabel=$2
	shift 2
	bars=
	for column; do
		bars="$bars '$out/$job.txt' using $column:xtic($label) title columnheader($column),"
	done
	gnuplot <<E2
set terminal svg size 800,480 noenhanced
set output '$out/$job.svg'
set style data histogram
set style fill solid 0.6 border
set key left top
set grid ytics
set yrange [0:]
set ylabel '$ylabel'
plot ${bars%,}
E2
	echo "$out/$job.svg"
}

label=1
draw ycsb 'us for one operation' 2 3 5
draw pagerank 'seconds' 2 3
label='strcol(1)." %, puts ".strcol(2)." %"'
draw recovery 'seconds' 3 4
