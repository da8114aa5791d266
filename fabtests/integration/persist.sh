#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# docs/examples/mpi_window.h: records committed by mpi_window_persist() survive
# a SIGKILL of their rank and a power cut. Without that call, or without the
# flush, records must be lost. The example program runs, too.
set -u

# shellcheck source=fabtests/integration/mpi.sh
. "${srcdir:-.}/fabtests/integration/mpi.sh"
# shellcheck source=fabtests/integration/lives.sh
. "$srcdir/fabtests/integration/lives.sh"
# compile NAME SOURCE
compile() {
	# shellcheck disable=SC2046
	mpicc -O2 -g -Wall -Wextra -Werror -I"$srcdir" -I"$srcdir/include" -o "$here/$1" \
		"$2" $(pkg-config --cflags --libs libfabric) || exit 99
}
compile persist "$srcdir/fabtests/integration/persist.c"
program=$here/persist
unset FI_OFI_RPMEM_COMMIT_WRITES

# life POOL MS BARE VARIABLE=VALUE...: run the job; rank 1 is killed after MS
# ms, unless MS is 0.
life() {
	job "$1 $here/notes $2 $3" "${@:4}"
}

for i in 1 2 3; do
	ms=$((100 + RANDOM % 400))
	life "$here/pool" $ms 0 A=b
	all_kept $i $ms persisted
done
enough 200 persisted

# A complete run: windows, helpers and the job close.
life "$here/pool" 0 0 A=b
read -r noted cut < <(count shadow)
if [ $code = 0 ] && [ "$cut" = 0 ] && [ "$noted" -gt 2000 ]; then
	ok "a whole run: $noted persisted, all kept after a power cut"
else
	not_ok "a whole run ends with $code, $cut of $noted lost"
	grep -v '<info>' "$here/log" | tail -20
fi

# Negative controls: each of them must lose records.
life "$here/pool" 400 1 A=b
loses "with MPI_Win_flush() alone"
life "$here/pool" 400 0 FI_PROVIDER_PATH="$here/fault" RPMEM_FAULT=skip-flush
loses "with the flush left out"

# A failed flush is no success: the window is refused.
# refused WHAT POOL VARIABLE=VALUE...
refused() {
	local what=$1

	life "$2" 400 0 "${@:3}"
	if [ "$(grep -c 'no durable window' "$here/log")" = 2 ] &&
		[ ! -s "$here/notes" ]; then
		ok "$what is refused on every rank"
	else
		not_ok "$what is not refused"
		grep -v '<info>' "$here/log" | tail -20
	fi
}
refused "a window on a disk that fails" "$here/pool" \
	FI_PROVIDER_PATH="$here/fault" RPMEM_FAULT=fail-flush
refused "a window in ordinary memory" anonymous A=b
cat >"$here/operator" <<END
[path $here]
limit class = process
END
chmod 600 "$here/operator"
refused "a window on a disk that loses its caches" "$here/pool" \
	FI_OFI_RPMEM_OPERATOR="$here/operator"

# The example program.
compile example "$srcdir/docs/examples/mpi_window.c"
fallocate -l 1M "$here/window"
readme 2 "$here/example $here/window" >"$here/commands"
if timeout 60 bash "$here/commands" >"$here/log" 2>&1 </dev/null &&
	grep -q 'durable in rank 1' "$here/log" &&
	[ "$(head -c 6 "$here/window")" = record ]; then
	ok "the example program runs"
else
	not_ok "the example program"
	grep -v '<info>' "$here/log" | tail -20
fi
echo "1..$mpi_count"
exit $mpi_failed
