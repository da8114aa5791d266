# SPDX-License-Identifier: BSD-2-Clause
# Runs MPI jobs of two ranks on a pool with a shadow; sourced after mpi.sh.
# shellcheck shell=bash

# shellcheck disable=SC2154 # mpi.sh's
here=$PWD/${dir#./} program=
mkdir "$here/fault"
ln -s "$PWD/fabtests/fault/.libs/librpmem-fault-fi.so" "$here/fault/" || exit 99

# job ARGUMENTS VARIABLE=VALUE...: run $program on a new pool; $code is its exit
# code.
job() {
	local arguments=$1

	shift
	rm -f "$here/pool" "$here/shadow" "$here/notes" "$here/killed"
	# A pool as an operator makes it: allocated, with whole pages.
	fallocate -l 16M "$here/pool" || exit 99
	readme 2 "$program $arguments" >"$here/commands"
	env "$@" RPMEM_KILLED="$here/killed" LD_PRELOAD="$PWD/fabtests/fault/.libs/libshadow.so" \
		RPMEM_SHADOW="$here/pool:$here/shadow" \
		timeout 60 bash "$here/commands" >"$here/log" 2>&1 </dev/null
	# shellcheck disable=SC2034
	code=$?
}

# count WHERE: print the numbers of noted and lost records
count() {
	"$program" verify "$here/$1" "$here/notes" | sed 's/[^0-9]\+/ /g'
}

noted_all=0
# all_kept LIFE MS DONE: rank 1 was killed; are all its records noted as DONE
# kept?
all_kept() {
	local noted lost cut

	# Rank 0 can end the job before mpirun notices the kill.
	[ -e "$here/killed" ] || {
		not_ok "life $1: rank 1 was not killed"
		tail -20 "$here/log"
		return
	}
	read -r noted lost < <(count pool)
	read -r _ cut < <(count shadow)
	noted_all=$((noted_all + noted))
	if [ "$lost" = 0 ] && [ "$cut" = 0 ]; then
		ok "life $1, killed after $2 ms: $noted $3, all kept," \
			"also after a power cut"
	else
		not_ok "life $1, killed after $2 ms: of $noted $lost lost," \
			"$cut by a power cut"
	fi
}

# enough RECORDS DONE: did the jobs together note at least RECORDS records?
enough() {
	if [ $noted_all -ge "$1" ]; then
		ok "$noted_all records were $2"
	else
		not_ok "only $noted_all records were $2"
		tail -20 "$here/log"
	fi
}

# loses HOW: would a power cut after the last job lose records?
loses() {
	local noted lost

	read -r noted lost < <(count shadow)
	if [ "$lost" -gt 0 ]; then
		ok "$1 a power cut loses $lost of $noted"
	else
		not_ok "$1 nothing of $noted is lost"
	fi
}
