#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# An unmodified MPI program with a window on a file: with the operator's word, what
# MPI_Win_flush() has seen off survives a SIGKILL of its rank and a power cut. The
# same without that word, and with the flush left out, must lose records.
set -u

# shellcheck source=fabtests/integration/mpi.sh
. "${srcdir:-.}/fabtests/integration/mpi.sh"
mpi_compile window
here=$PWD/${dir#./}
mkdir "$here/fault"
ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$here/fault/" || exit 99
window=$here/window

# life MS COMPUTES VARIABLE=VALUE...: rank 1 is killed after MS.
life() {
	local ms=$1 computes=$2

	shift 2
	rm -f "$here/pool" "$here/shadow" "$here/notes"
	# It is what an operator makes: allocated, of whole pages.
	fallocate -l 16M "$here/pool" || exit 99
	readme 2 "$window $here/pool $here/notes $ms $computes" >"$here/commands"
	env "$@" LD_PRELOAD="$PWD/fabtests/fault/.libs/libshadow.so" \
		RPMEM_SHADOW="$here/pool:$here/shadow" \
		timeout 60 bash "$here/commands" >"$here/log" 2>&1 </dev/null
}

# count WHERE: "NOTED LOST"
count() {
	"$window" verify "$here/$1" "$here/notes" |
		sed 's/[^0-9]\+/ /g'
}

noted_all=0
for i in 1 2 3 4 5 6; do
	ms=$((150 + RANDOM % 500))
	life $ms $((i % 2)) FI_OFI_RPMEM_COMMIT_WRITES=1
	grep -q 'signal 9' "$here/log" || {
		not_ok "life $i: rank 1 was not killed"
		tail -20 "$here/log"
		continue
	}
	read -r noted lost < <(count pool)
	read -r _ cut < <(count shadow)
	noted_all=$((noted_all + noted))
	if [ "$lost" = 0 ] && [ "$cut" = 0 ]; then
		ok "life $i, killed after $ms ms: $noted flushed, all there," \
			"also after a power cut"
	else
		not_ok "life $i, killed after $ms ms: of $noted $lost lost," \
			"$cut by a power cut"
	fi
done
if [ $noted_all -ge 50 ]; then
	ok "$noted_all records were flushed"
else
	not_ok "only $noted_all records were flushed"
	tail -20 "$here/log"
fi

# The test can fail: each must lose some.
life 400 1 FI_OFI_RPMEM_COMMIT_WRITES=0
read -r noted lost < <(count shadow)
if [ "$lost" -gt 0 ]; then
	ok "not asked for, a power cut loses $lost of $noted"
else
	not_ok "not asked for, and nothing of $noted is lost"
fi
life 400 1 FI_OFI_RPMEM_COMMIT_WRITES=1 FI_PROVIDER_PATH="$here/fault" \
	RPMEM_FAULT=skip-flush
read -r noted lost < <(count shadow)
if [ "$lost" -gt 0 ]; then
	ok "with the flush left out a power cut loses $lost of $noted"
else
	not_ok "with the flush left out nothing of $noted is lost"
fi

# A flush that fails is nobody's success.
life 3000 1 FI_OFI_RPMEM_COMMIT_WRITES=1 FI_PROVIDER_PATH="$here/fault" \
	RPMEM_FAULT=fail-flush
read -r noted _ < <(count shadow)
if [ "$noted" = 0 ] && ! grep -q 'signal 9' "$here/log"; then
	ok "a flush that fails ends the job, and nothing was noted"
else
	not_ok "every flush failed, and $noted records were noted"
	tail -20 "$here/log"
fi

# A file that cannot have it is no window: here the disk loses its caches.
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
