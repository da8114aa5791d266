#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds this project in a guest's root, and gathers the guest's programs.
#
# usage: guest_build.sh ROOT SOURCES OUT [carried]
#
# Run in a separate mount namespace. The result is OUT/payload; with "carried"
# only the programs for guests of other releases.
set -eu

root=$1 src=$2 out=$3

mount --bind "$src" "$root/src"
mount -o remount,bind,ro "$root/src"
mount --bind "$out" "$root/build"
mount -t tmpfs tmp "$root/tmp"
mount -t proc proc "$root/proc"
export CARRIED="${4:-}"
exec chroot "$root" /bin/sh -eux <<'I'
export LC_ALL=C
# Warnings matter only with the compiler that developers use.
mkdir -p /build/make
cd /build/make
[ config.status -nt /src/configure ] ||
	CONFIG_SHELL=/bin/dash /src/configure -q --disable-werror CFLAGS='-O2 -g1'

# Use only symbols of older C libraries, so that only libibverbs differs: scanf
# and strtol have new versions since glibc 2.38.
carried() {
	make -s -j2 fabtests/vm/shim
	rm -rf carried
	mkdir carried
	for f in fabtests/vm/shim.o fabtests/vm/ends.o prov/verbs/.libs/libshim.a \
		prov/core/.libs/libcore.a; do
		objcopy --redefine-sym __isoc23_sscanf=sscanf \
			--redefine-sym __isoc23_fscanf=fscanf \
			--redefine-sym __isoc23_strtol=strtol \
			--redefine-sym __isoc23_strtoul=strtoul \
			--redefine-sym __isoc23_strtoull=strtoull \
			"$f" "carried/${f##*/}"
	done
	gcc -o carried/shim carried/*.o carried/libshim.a carried/libcore.a \
		-lpmem2 -libverbs -lpthread
	strip -S carried/shim
}
if [ -n "$CARRIED" ]; then
	carried
	exit
fi
make -s -j2 prov/rpmem/librpmem-fi.la \
	fabtests/fault/librpmem-fault-fi.la fabtests/fault/libshadow.la \
	util/fi_rpmem_info util/fi_rpmemd util/fi_rpmem_cp \
	util/fi_rpmem_plugpull \
	fabtests/benchmarks/suite fabtests/benchmarks/rivals \
	fabtests/functional/basic fabtests/functional/private_conn \
	fabtests/functional/connected fabtests/functional/order \
	fabtests/functional/man_claims fabtests/fault/badinput \
	fabtests/fault/powercut fabtests/fault/device fabtests/fault/machines \
	fabtests/fault/log_writer fabtests/fault/rpc_peer \
	fabtests/vm/native fabtests/vm/rc_pair fabtests/vm/bare_key \
	fabtests/vm/shim fabtests/vm/shim_cost fabtests/vm/shim_cut \
	fabtests/vm/shim_cut_faults fabtests/vm/shim_rivals
rm -rf /build/payload
mkdir -p /build/payload/prov/rpmem/.libs /build/payload/fabtests/fault/.libs \
	/build/payload/fabtests/functional /build/payload/util \
	/build/payload/fabtests/benchmarks /build/payload/fabtests/vm
for f in prov/rpmem/.libs/librpmem-fi.so \
	fabtests/fault/.libs/librpmem-fault-fi.so \
	fabtests/fault/.libs/libshadow.so util/fi_rpmem_info util/fi_rpmemd \
	fabtests/benchmarks/suite fabtests/benchmarks/rivals \
	fabtests/functional/basic fabtests/functional/private_conn \
	fabtests/functional/connected fabtests/functional/order \
	fabtests/functional/man_claims fabtests/fault/badinput \
	fabtests/fault/powercut fabtests/fault/device \
	fabtests/fault/machines fabtests/vm/shim fabtests/vm/shim_cost \
	fabtests/vm/shim_cut fabtests/vm/shim_cut_faults fabtests/vm/shim_rivals \
	fabtests/vm/native fabtests/vm/rc_pair fabtests/vm/bare_key; do
	strip -S -o "/build/payload/$f" "$f"
done
# The programs without libtool's wrapper scripts, and their libraries.
for f in util/fi_rpmem_cp util/fi_rpmem_plugpull util/librpmem_pool.so.0 \
	util/librpmem_log.so.0 util/librpmem_rpc.so.0 \
	fabtests/fault/log_writer fabtests/fault/rpc_peer; do
	strip -S -o "/build/payload/$f" "${f%/*}/.libs/${f##*/}"
done
# Compile like a program's author, except that the library is not installed.
mkdir /build/payload/examples
for f in append write_flush; do
	gcc -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -I/src/include \
		-o "/build/payload/examples/$f" "/src/docs/examples/$f.c" \
		prov/verbs/.libs/libshim.a prov/core/.libs/libcore.a \
		-lpmem2 -libverbs -lpthread
done
# rdma-core 45 is the first with FLUSH.
if grep -q ibv_wr_flush /usr/include/infiniband/verbs.h; then
	gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o /build/payload/flush \
		/src/fabtests/vm/flush.c -libverbs
	gcc -std=gnu11 -O2 -Wall -Wextra -Werror -D_GNU_SOURCE \
		-o /build/payload/preload /src/fabtests/vm/preload.c -libverbs
	gcc -D_GNU_SOURCE -O2 -Wall -Wextra -Werror \
		-o /build/payload/examples/native_flush \
		/src/docs/examples/native_flush.c -libverbs
	mkdir -p /build/payload/prov/verbs/.libs
	make -s -j2 prov/verbs/libibvrpmem_preload.la \
		fabtests/fault/libibvrpmem_preload-fault.la
	for f in prov/verbs/.libs/libibvrpmem_preload.so \
		fabtests/fault/.libs/libibvrpmem_preload-fault.so; do
		strip -S -o "/build/payload/$f" "$f"
	done
fi
I
