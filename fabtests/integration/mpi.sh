# SPDX-License-Identifier: BSD-2-Clause
# Shared by tests with Open MPI; sourced. Creates the folder $dir.
# shellcheck shell=bash

[ -z "${RP_SANITIZE:-}" ] || { echo "SKIP: Open MPI has no sanitizer"; exit 77; }
for mpi_needs in mpicc mpirun; do
	command -v $mpi_needs >/dev/null || {
		echo "SKIP: $mpi_needs is missing; on Debian: apt-get install" \
			"openmpi-bin libopenmpi-dev"
		exit 77
	}
done
mpirun --version | grep -q 'Open MPI) 4\.1\.' || {
	echo "SKIP: mpirun is not that of Open MPI 4.1"
	exit 77
}
: "${srcdir:=.}"
: "${FI_PROVIDER_PATH:=$PWD/prov/rpmem/.libs}"
export FI_PROVIDER_PATH
dir=$(mktemp -d ./mpi.XXXXXX) || exit 99
# A short path, because names of sockets are limited.
mpi_tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$dir" "$mpi_tmp"' EXIT
export TMPDIR=$mpi_tmp
# On one machine, as any user, only over loopback.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_orte_tmpdir_base=$mpi_tmp OMPI_MCA_oob_tcp_if_include=lo
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export PMIX_MCA_ptl_tcp_if_include=lo FI_TCP_IFACE=lo
# Log which process opens which domain over which base.
export FI_LOG_LEVEL=info FI_LOG_PROV=ofi_rpmem FI_LOG_SUBSYS=domain

# shellcheck disable=SC2034 # for who sources this
mpi_count=0 mpi_failed=0
ok() {
	mpi_count=$((mpi_count + 1))
	echo "ok $mpi_count - $*"
}
not_ok() {
	mpi_count=$((mpi_count + 1))
	# shellcheck disable=SC2034
	mpi_failed=1
	echo "not ok $mpi_count - $*"
}

# mpi_compile NAME: compile fabtests/integration/NAME.c to $dir/NAME
mpi_compile() {
	mpicc -O2 -g -Wall -Wextra -Werror -o "$dir/$1" \
		"$srcdir/fabtests/integration/$1.c" || exit 99
}

# readme RANKS PROGRAM: print the commands of README.md for RANKS ranks
readme() {
	awk '/^## / { on = /^## From MPI/ } on && sub(/^    /, "")' \
		"$srcdir/README.md" |
		sed "s/-np 2/-np $1/; s|\\./program|$2|"
}

# Count the processes that opened two domains, for messages and for windows.
both_domains() {
	sed -n 's/^libfabric:\([0-9]*\):.*ofi_rpmem:domain:.* is opened over .*/\1/p' \
		"$1" | sort | uniq -c | grep -c '^ *2 '
}
