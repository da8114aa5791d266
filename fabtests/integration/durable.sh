#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# An unmodified MPI program with a window on a file. If the operator states
# COMMIT_WRITES, puts that MPI_Win_flush() has completed survive a SIGKILL of
# their target rank and a power cut. Without that statement, or without the
# flush, records must be lost.
set -u

# shellcheck source=fabtests/integration/mpi.sh
. "${srcdir:-.}/fabtests/integration/mpi.sh"
# shellcheck source=fabtests/integration/lives.sh
. "$srcdir/fabtests/integration/lives.sh"
mpi_compile window
program=$here/window

# life MS COMPUTES VARIABLE=VALUE...: run the job; rank 1 is killed after MS ms.
life() {
	job "$here/pool $here/notes $1 $2" "${@:3}"
}

for i in 1 2 3 4 5 6; do
	ms=$((150 + RANDOM % 500))
	life $ms $((i % 2)) FI_OFI_RPMEM_COMMIT_WRITES=1
	all_kept $i $ms flushed
done
enough 50 flushed

# Negative controls: each of them must lose records.
life 400 1 FI_OFI_RPMEM_COMMIT_WRITES=0
loses "not asked for,"
life 400 1 FI_OFI_RPMEM_COMMIT_WRITES=1 FI_PROVIDER_PATH="$here/fault" \
	RPMEM_FAULT=skip-flush
loses "with the flush left out"

# A failed flush is never reported as success.
life 3000 1 FI_OFI_RPMEM_COMMIT_WRITES=1 FI_PROVIDER_PATH="$here/fault" \
	RPMEM_FAULT=fail-flush
read -r noted _ < <(count shadow)
if [ "$noted" = 0 ] && ! grep -q 'signal 9' "$here/log"; then
	ok "a flush that fails ends the job, and nothing was noted"
else
	not_ok "every flush failed, and $noted records were noted"
	tail -20 "$here/log"
fi

# A file of a lower class cannot be a window: this disk loses its volatile
# cache.
cat >"$here/operator" <<END
[path $here]
limit class = process
END
chmod 600 "$here/operator"
life 400 1 FI_OFI_RPMEM_COMMIT_WRITES=1 FI_OFI_RPMEM_OPERATOR="$here/operator" \
	FI_LOG_SUBSYS=domain,mr
if grep -q 'class process, and power is required' "$here/log" &&
	[ ! -s "$here/notes" ]; then
	ok "a file that does not reach the class is refused as a window"
else
	not_ok "a file that does not reach the class is taken as a window"
	tail -20 "$here/log"
fi
echo "1..$mpi_count"
exit $mpi_failed
