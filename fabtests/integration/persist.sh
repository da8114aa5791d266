#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# ofi_rpmem_mpi.h: what rpmem_mpi_win_persist() has seen off survives a SIGKILL of
# its rank and a power cut; the same without it, or with the flush left out, must
# lose records. And its man page's example runs.
set -u

# shellcheck source=fabtests/integration/mpi.sh
. "${srcdir:-.}/fabtests/integration/mpi.sh"
here=$PWD/${dir#./}
# compile NAME SOURCE
compile() {
	# shellcheck disable=SC2046
	mpicc -O2 -g -Wall -Wextra -Werror -I"$srcdir/include" -o "$here/$1" \
		"$2" $(pkg-config --cflags --libs libfabric) || exit 99
}
compile persist "$srcdir/fabtests/integration/persist.c"
mkdir "$here/fault"
ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$here/fault/" || exit 99
unset FI_OFI_RPMEM_COMMIT_WRITES

# life POOL MS BARE VARIABLE=VALUE...: rank 1 is killed after MS, if not 0.
life() {
	local pool=$1 ms=$2 bare=$3

	shift 3
	rm -f "$here/pool" "$here/shadow" "$here/notes"
	fallocate -l 16M "$here/pool" || exit 99
	readme 2 "$here/persist $pool $here/notes $ms $bare" >"$here/commands"
	env "$@" LD_PRELOAD="$PWD/fabtests/fault/.libs/libshadow.so" \
		RPMEM_SHADOW="$here/pool:$here/shadow" \
		timeout 60 bash "$here/commands" >"$here/log" 2>&1 </dev/null
	code=$?
}

# count WHERE: "NOTED LOST"
count() {
	"$here/persist" verify "$here/$1" "$here/notes" | sed 's/[^0-9]\+/ /g'
}

noted_all=0
for i in 1 2 3; do
	ms=$((100 + RANDOM % 400))
	life "$here/pool" $ms 0 A=b
	grep -q 'signal 9' "$here/log" || {
		not_ok "life $i: rank 1 was not killed"
		tail -20 "$here/log"
		continue
	}
	read -r noted lost < <(count pool)
	read -r _ cut < <(count shadow)
	noted_all=$((noted_all + noted))
	if [ "$lost" = 0 ] && [ "$cut" = 0 ]; then
		ok "life $i, killed after $ms ms: $noted persisted, all there," \
			"also after a power cut"
	else
		not_ok "life $i, killed after $ms ms: of $noted $lost lost," \
			"$cut by a power cut"
	fi
done
if [ $noted_all -ge 200 ]; then
	ok "$noted_all records were persisted"
else
	not_ok "only $noted_all records were persisted"
	tail -20 "$here/log"
fi

# To its end: windows and helpers are closed, and the job with them.
life "$here/pool" 0 0 A=b
read -r noted cut < <(count shadow)
if [ $code = 0 ] && [ "$cut" = 0 ] && [ "$noted" -gt 2000 ]; then
	ok "a whole run: $noted persisted, all there after a power cut"
else
	not_ok "a whole run ends with $code, $cut of $noted lost"
	grep -v '<info>' "$here/log" | tail -20
fi

# The test can fail: each must lose some.
life "$here/pool" 400 1 A=b
read -r noted lost < <(count shadow)
if [ "$lost" -gt 0 ]; then
	ok "with MPI_Win_flush() alone a power cut loses $lost of $noted"
else
	not_ok "with MPI_Win_flush() alone nothing of $noted is lost"
fi
life "$here/pool" 400 0 FI_PROVIDER_PATH="$here/fault" RPMEM_FAULT=skip-flush
read -r noted lost < <(count shadow)
if [ "$lost" -gt 0 ]; then
	ok "with the flush left out a power cut loses $lost of $noted"
else
	not_ok "with the flush left out nothing of $noted is lost"
fi

# A flush that fails is nobody's success: the window is not taken.
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

# The man page's example, as printed.
awk '/^\.Sh / { on = ($2 == "EXAMPLES") }
	on && /^\.Bd -literal$/ { text = 1; next }
	/^\.Ed/ { text = 0 }
	text { gsub(/\\e/, "\\"); print }' \
	"$srcdir/man/rpmem_mpi_win_durable.3" >"$here/example.c"
compile example "$here/example.c"
fallocate -l 1M "$here/window"
readme 2 "$here/example $here/window" >"$here/commands"
if timeout 60 bash "$here/commands" >"$here/log" 2>&1 </dev/null &&
	grep -q 'durable in rank 1' "$here/log" &&
	[ "$(head -c 6 "$here/window")" = record ]; then
	ok "the man page's example runs"
else
	not_ok "the man page's example"
	grep -v '<info>' "$here/log" | tail -20
fi
echo "1..$mpi_count"
exit $mpi_failed
