#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Includes go one way.
set -u
cd "${srcdir:-.}" || exit 99
status=0

# forbid WHERE PATTERN WHY: no file of these may match the pattern
forbid()
{
	if grep -rnE "$2" --include='*.[ch]' "$1"; then
		echo "FAIL: $3"
		status=1
	fi
}

[ -f prov/core/method.h ] && [ -f prov/rpmem/rpmem.h ] || exit 99
inc='^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]'
forbid prov/core "$inc(rdma|infiniband)/" "prov/core knows fi_* or ibv_*"
forbid prov/core "$inc(\.\./)*(rc|rpmem|verbs|util|pmsim)/" "prov/core looks up"
forbid prov/rc "$inc(\.\./)*(rpmem|verbs|util|pmsim)/" "prov/rc looks aside or up"
forbid prov/rpmem "$inc(\.\./)*(verbs|util)/" "prov/rpmem looks aside or up"
forbid prov/rpmem "$inc(infiniband/|rdma/rdma_)" "prov/rpmem knows ibv_*"
# The compiler looks for included files in these folders, too.
for f in $(grep -rhE "$inc" --include='*.[ch]' prov |
	sed -E "s@$inc([^\">]*).*@\\1@" | sort -u); do
	[ "$f" != config.h ] && [ ! -f "prov/$f" ] && [ ! -f "include/$f" ] ||
		continue
	for d in . util fabtests; do
		[ ! -f "$d/$f" ] || forbid prov "$inc$f" "prov looks up, to $d/$f"
	done
done
# A backend of private connections does not include another backend's library.
for f in $(grep -lE "$inc(infiniband/|rdma/rdma_)" prov/rc/*.[ch]); do
	case $f in
	prov/rc/rc_verbs*.[ch] | prov/rc/rc_native_flush.[ch])
		forbid "$f" "${inc}rdma/fi" "$f knows fi_*"
		;;
	*) echo "FAIL: $f knows ibv_*"; status=1 ;;
	esac
done
for d in prov/verbs prov/pmsim; do
	[ ! -d $d ] || forbid $d "$inc(\.\./)*(rpmem|util)/" "$d looks aside or up"
done
# The model, which checks the code, includes none of that code.
for f in prov/pmsim/model*.[ch]; do
	forbid "$f" "$inc(\.\./)*core/" "$f leans on what it is to judge"
done
# Only prov/core/pmem*.c uses msync and libpmem2, and only wire*.c byte order.
for f in $(grep -lE '\bmsync\(|libpmem2\.h' prov/*/*.c); do
	case $f in
	prov/core/pmem*.c) ;;
	*) echo "FAIL: $f uses msync or libpmem2"; status=1 ;;
	esac
done
for f in $(grep -lE '\b(htole|le)(16|32|64)(toh)?\(' prov/*/*.c); do
	case $f in
	prov/core/wire*.c) ;;
	*) echo "FAIL: $f touches byte order"; status=1 ;;
	esac
done
exit $status
