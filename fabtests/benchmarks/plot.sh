#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs log.c, rpc.c, and ycsb.c with the example kv_server, in the build folder,
# and draws their tables by gnuplot: log.svg, rpc.svg, ycsb.svg, pagerank.svg and
# recovery.svg.
# usage: plot.sh OUT FOLDER power|process [ROUNDS [OPERATIONS [JOB...]]]
# The pools are made in FOLDER; those of log and rpc also in /dev/shm, as
# emulated persistent memory. A table that is in OUT already is drawn, and not
# measured again. JOB: log, rpc, ycsb, pagerank or recovery; default: all. The last
# lines are the ratios that are wanted: NAME WHERE VALUE RELATION LIMIT met|missed.
set -eu
[ $# -ge 3 ] || { sed -n '3,10s/^# //p' "$0"; exit 2; }
src=$(cd "$(dirname "$0")/../.." && pwd)
out=$1 folder=$2 class=$3 rounds=${4:-11} operations=${5:-1000}
shift "$(($# < 5 ? $# : 5))"
[ $# -gt 0 ] || set -- log rpc ycsb pagerank recovery
mkdir -p "$out"
work=$(mktemp -d "$folder/kv.XXXXXX")
memory=$(mktemp -d /dev/shm/kv.XXXXXX)
daemon=
finish()
{
	[ -z "$daemon" ] || kill "$daemon"
	rm -rf "$work" "$memory"
}
trap finish EXIT
export LD_LIBRARY_PATH="$PWD/util/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export FI_TCP_IFACE=lo FI_PROVIDER_PATH="$PWD/prov/rpmem/.libs"

# shellcheck disable=SC2086 # flags are lists
${CC:-cc} ${CFLAGS:--O2} -I"$src/include" -o "$work/kv_server" \
	"$src/docs/examples/kv_server.c" -Lutil/.libs -lrpmem_rpc -llmdb

# measure TABLE COMMAND...: write the command's output to the table.
measure()
{
	table=$1
	shift
	[ ! -s "$out/$table.txt" ] || return 0
	{
		echo "# $(date -u +%Y-%m-%dT%H:%MZ), load $(cut -d ' ' -f 1-3 /proc/loadavg)"
		"$@"
	} >"$out/$table.part"
	mv "$out/$table.part" "$out/$table.txt"
}

# run_log DIR: five pools of one daemon; a local file on the disk of FOLDER.
run_log()
{
	rm -f "$work/port"
	util/fi_rpmemd --port 0 --port-file "$work/port" --create 4M \
		"$1/p" "$1/a" "$1/b" "$1/c" "$1/d" >"$work/daemon.out" 2>&1 &
	daemon=$!
	until [ -s "$work/port" ]; do
		kill -0 "$daemon" 2>/dev/null ||
			{ cat "$work/daemon.out" >&2; daemon=; exit 1; }
		sleep 0.05
	done
	at=127.0.0.1:$(cat "$work/port")
	fabtests/benchmarks/log "$at:p" "$at:a" "$at:b" "$at:c" "$at:d" \
		"$rounds" "$work/file"
	kill "$daemon"
	wait "$daemon" || :
	daemon=
}

run_ycsb()
{
	fabtests/benchmarks/ycsb "$work/kv_server" "$work/$1" "$class" "$@"
	rm -f "$work/$1".*
}

# in_memory COMMAND...: with emulated persistent memory.
in_memory()
{
	export FI_OFI_RPMEM_EMULATE=1
	"$@"
	unset FI_OFI_RPMEM_EMULATE
}

# draw JOB YLABEL COLUMN...
draw()
{
	job=$1 ylabel=$2
	shift 2
	bars=
	for column; do
		bars="$bars '$out/${data:-$job.txt}' using $column:xtic($label) title columnheader($column),"
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

# The tables of log and rpc, with one column for each memory.
join_log()
{
	awk 'FNR == 1 { file++ } /^#/ || /\// { next }
		{ us = $NF; sub(/ +[0-9.]+$/, ""); v[file, $0] = us
		  if (file == 1) name[++n] = $0 }
		END { print "operation emulated file"
		  for (i = 1; i <= n; i++)
			printf "\"%s\" %s %s\n", name[i], v[1, name[i]], v[2, name[i]] }' \
		"$out/log-memory.txt" "$out/log-file.txt" >"$out/log.dat"
}

join_rpc()
{
	awk 'FNR == 1 { file++ } $1 !~ /^[0-9]+$/ { next }
		{ key = $1 " B, " $2 " us"; v[file, key] = $3 " " $4
		  if (file == 1) name[++n] = key }
		END { print "call emulated,reply emulated,ack file,reply file,ack"
		  for (i = 1; i <= n; i++)
			printf "\"%s\" %s %s\n", name[i], v[1, name[i]], v[2, name[i]] }' \
		"$out/rpc-memory.txt" "$out/rpc-file.txt" >"$out/rpc.dat"
}

# Print each wanted ratio of the tables that
# are there: NAME WHERE VALUE RELATION LIMIT met|missed.
wanted()
{
	tables=
	for table in log-memory rpc-memory log-file rpc-file ycsb recovery; do
		[ ! -s "$out/$table.txt" ] || tables="$tables $table.txt"
	done
	[ -n "$tables" ] || return 0
	# shellcheck disable=SC2086 # a list
	(cd "$out" && awk '
		function bar(name, value, relation, limit)
		{
			value += 0
			met = value == limit ? relation != "<" : (value < limit) == (relation != ">=")
			printf "%-40s %-7s %6.3f %s %s %s\n", name, where, value, relation,
				limit, met ? "met" : "missed"
		}
		FNR == 1 {
			table = where = FILENAME
			sub(/[-.].*/, "", table)
			if (!sub(/^.*-/, "", where) || !sub(/\.txt$/, "", where))
				where = "folder"
		}
		/^append \/ durable write / { bar("log_append_64B_vs_durable_write", $NF, "<=", 1.05) }
		/^append \/ two commits / { bar("log_append_vs_two_commits", $NF, "<=", 0.55) }
		/^pipelined \/ awaited / { bar("log_64_pipelined_vs_awaited", $NF, "<=", 0.15) }
		/^16 appenders \/ 16 writers / {
			bar("log_16_appenders_throughput", $7, ">=", 1.39)
			bar("log_16_appenders_latency", $NF, "<=", 0.47)
		}
		/^append 8 KiB \/ local file / { bar("log_append_8KiB_vs_local_file", $NF, "<=", 0.125) }
		table == "rpc" && $1 ~ /^[0-9]+$/ {
			bar("rpc_" $1 "B_" $2 "us_throughput", $5, ">=", $2 ? 1.58 : 1.0)
		}
		table == "ycsb" && ($1 == "A" || $1 == "E") { bar("ycsb_" $1 "_latency", $4, "<=", 0.6) }
		table == "recovery" && /^[0-9]/ { bar("recovery_" $1 "_" $2, $NF, "<", 1) }' $tables)
}

for job; do
	label=1 data=
	case $job in
	log)
		measure log-memory in_memory run_log "$memory"
		measure log-file run_log "$work"
		join_log
		data=log.dat
		draw log 'us for one entry' 2 3
		;;
	rpc)
		measure rpc-memory in_memory fabtests/benchmarks/rpc "$memory/rpc" none "$rounds"
		measure rpc-file fabtests/benchmarks/rpc "$work/rpc" "$class" "$rounds"
		join_rpc
		data=rpc.dat
		draw rpc 'us for one call' 2 3 4 5
		;;
	ycsb)
		measure ycsb run_ycsb ycsb ABCDEF "$rounds" "$operations"
		draw ycsb 'us for one operation' 2 3 5
		;;
	pagerank)
		measure pagerank run_ycsb pagerank wordassociation,enron,dblp 1
		draw pagerank 'seconds' 2 3
		;;
	recovery)
		measure recovery run_ycsb recovery 3 1000
		label='strcol(1)." %, puts ".strcol(2)." %"'
		draw recovery 'seconds' 3 4
		;;
	*)
		echo "plot.sh: '$job' is no job; jobs: log, rpc, ycsb, pagerank, recovery" >&2
		exit 2
		;;
	esac
done
wanted | tee "$out/bars.txt"
