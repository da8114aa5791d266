# SPDX-License-Identifier: BSD-2-Clause
# The tests in a guest: first those of memory, then those of the RDMA device.
# shellcheck shell=sh

here=$PWD
domain=$(parameter rp.domain)
export FI_PROVIDER_PATH=$here/prov/rpmem/.libs FI_TCP_IFACE=lo
export LD_LIBRARY_PATH=$here/util
# Long timeouts: an emulated target is slow, not dead.
export FI_OFI_RPMEM_TIMEOUT=30000

# The two machines have different persistence domains.
case $domain in
adr) in_sysfs=memory_controller in_words=memory-controller dax_by=agent-clwb ;;
eadr) in_sysfs=cpu_cache in_words=cpu-caches dax_by=delivery ;;
esac

note "memory"
for m in nfit nd_pmem device_dax dax_pmem; do
	modprobe $m
done
# libfabric's verbs provider reads all of /proc/kallsyms in each process, which
# takes a second here. The stage prepare needs the addresses in it.
[ "$(parameter rp.stage)" = prepare ] || mount --bind /dev/null /proc/kallsyms
cut=$here/fabtests/fault/powercut
case $(parameter rp.stage) in
'') ;;
target | initiator)
	. ./sides.sh
	return
	;;
*)
	. ./lives.sh
	return
	;;
esac
is "the kernel's persistence domain" \
	"$(cat /sys/bus/nd/devices/region0/persistence_domain)" $in_sysfs
t "a namespace for fsdax" ndctl create-namespace -f -e namespace0.0 -m fsdax
t "a namespace for devdax" ndctl create-namespace -f -e namespace1.0 -m devdax
pmem=$(echo /dev/pmem*) dax=$(echo /dev/dax*.0)
mkdir -p /mnt/fsdax /root/disk
t "ext4 on $pmem" mkfs.ext4 -q -F -b 4096 "$pmem"
t "ext4 on $pmem, mounted for DAX" mount -o dax=always "$pmem" /mnt/fsdax

# says FIELD PATH: print the field of fi_rpmem_info's output for the path
says() { util/fi_rpmem_info "$2" 2>&1 | sed -n "s/^  $1  *\([^ ]*\).*/\1/p" | tail -1; }

# facts PATH MEMORY METHOD: fi_rpmem_info must print these for the path
facts() {
	is "fi_rpmem_info $1, memory" "$(says memory "$1")" "$2"
	is "fi_rpmem_info $1, class" "$(says class "$1")" power
	is "fi_rpmem_info $1, method" "$(says method "$1")" "$3"
}
note "facts"
facts "$dax" dax-sync $dax_by
facts /mnt/fsdax dax-sync $dax_by
facts /root/disk file agent-msync
is "fi_rpmem_info, the host" "$(util/fi_rpmem_info |
	grep -o -m1 -e "$in_words")" $in_words
t "fi_rpmem_info --doctor commits" \
	util/fi_rpmem_info --doctor /mnt/fsdax /root/disk

# exported FOLDER METHOD: check a daemon's export of a pool in FOLDER, and
# copies to and from it.
exported() {
	rm -f "$1/pool" port
	util/fi_rpmemd --port 0 --port-file port --create 4M "$1/pool" \
		>daemon.out 2>&1 &
	daemon=$!
	for _ in $(seq 100); do
		[ -e port ] && break
		sleep 0.1
	done
	to=127.0.0.1:$(cat port):pool
	util/fi_rpmem_info --target "$to" >$out 2>&1
	is "fi_rpmemd, a pool in $1, method" \
		"$(sed -n 's/^  method  *//p' $out)" "$2"
	head -c 1000000 /dev/urandom >/tmp/sent
	t "fi_rpmem_cp to $1" util/fi_rpmem_cp /tmp/sent "$to"
	rm -f /tmp/back
	t "fi_rpmem_cp from $1" util/fi_rpmem_cp "$to" /tmp/back
	t "fi_rpmem_cp, the bytes in $1" cmp -n 1000000 /tmp/sent /tmp/back
	kill $daemon
	wait $daemon
	is "fi_rpmemd, a pool in $1, ends" $? 0
	rm -f "$1/pool"
}
note "fi_rpmemd"
exported /mnt/fsdax $dax_by
exported /root/disk agent-msync

# Run the same programs on every kind of memory.
note "the provider"
basic=$here/fabtests/functional/basic
if [ "$domain" = adr ]; then # the other machine adds nothing to these
	tap "basic on a disk" env -C /root/disk "$basic"
	tap "basic on fsdax" env -C /mnt/fsdax RPMEM_METHOD=agent-clwb-msync \
		"$basic"
	tap "man pages' claims" env -C /root/disk -u FI_OFI_RPMEM_TIMEOUT \
		"$here/fabtests/functional/man_claims"
	tap "bad input, on a disk" env -C /root/disk -u FI_OFI_RPMEM_TIMEOUT \
		"$here/fabtests/fault/badinput"
fi
tap "basic on fsdax with MAP_SYNC" env -C /mnt/fsdax \
	RPMEM_MAP_SYNC=1 RPMEM_METHOD=$dax_by "$basic"
tap "basic on devdax" env RPMEM_POOL="$dax" RPMEM_METHOD=$dax_by "$basic"

# Targets are killed. Then the shadow of flushed bytes is compared, or the
# memory itself, if the method needs no flush.
note "power cuts"
RPMEM_SHADOW_LIB=$here/fabtests/fault/.libs/libshadow.so
tap "power cuts on fsdax" env -C /mnt/fsdax \
	RPMEM_SHADOW_LIB="$RPMEM_SHADOW_LIB" "$cut" -n 5
# Only the provider with fault points reports non-temporal stores.
faulty=FI_PROVIDER_PATH=$here/fabtests/fault/.libs
if [ "$domain" = adr ]; then
	on_fsdax="-C /mnt/fsdax RPMEM_SHADOW_LIB=$RPMEM_SHADOW_LIB
		RPMEM_MAP_SYNC=1"
	on_devdax="-C /root/disk RPMEM_SHADOW_LIB=$RPMEM_SHADOW_LIB
		RPMEM_POOL=$dax"
	# shellcheck disable=SC2086
	{
		tap "power cuts on fsdax with MAP_SYNC" env $on_fsdax \
			FI_OFI_RPMEM_INLINE=0 "$cut" -n 5
		tap "power cuts on devdax" env $on_devdax \
			FI_OFI_RPMEM_INLINE=0 "$cut" -n 5
		tap "power cuts on fsdax, stores past the caches" \
			env $on_fsdax "$faulty" "$cut" -n 5
		tap "power cuts on devdax, stores past the caches" \
			env $on_devdax "$faulty" "$cut" -n 5
		tap "power cuts on devdax without the flush" env $on_devdax \
			"$faulty" RPMEM_FAULT=skip-flush RPMEM_EXPECT_LOSS=1 \
			"$cut" -n 10
	}
else
	tap "power cuts on fsdax with MAP_SYNC" env -C /mnt/fsdax \
		RPMEM_MAP_SYNC=1 "$cut" -c -n 5
	tap "power cuts on devdax" env -C /root/disk \
		RPMEM_POOL="$dax" "$cut" -c -n 5
fi

# Set up an RDMA device without hardware.
note "RDMA"
rxe_netdev
t "rxe" rdma link add rxe0 type rxe netdev eth0
sleep 1
t "ibv_devinfo" sh -c 'ibv_devinfo -d rxe0 | grep PORT_ACTIVE'
t "libfabric's verbs" sh -c 'fi_info -p verbs | grep "domain: rxe0"'

# both SERVER CLIENT: run both; the result is the client's exit status
both() {
	sh -c "$1" >$out.server 2>&1 &
	server=$!
	sleep 2
	sh -c "$2"
	code=$?
	kill $server 2>/dev/null
	[ $code = 0 ] || cat $out.server
	return $code
}
long "rping" both "timeout 60 rping -s -a 10.9.0.1 -C 10" \
	"timeout 60 rping -c -a 10.9.0.1 -C 10 -v"
long "ib_write_lat" both "timeout 60 ib_write_lat -d rxe0 -x 1 -n 100" \
	"timeout 60 ib_write_lat -d rxe0 -x 1 -n 100 10.9.0.1"

. ./flush.sh
if [ "$domain" = adr ]; then
	note "private connections"
	tap "queue pairs" "$here/fabtests/vm/rc_pair" 10.9.0.1 rxe0 "$dax"
fi
. ./shim.sh
. ./preload.sh
. ./verbs.sh
if [ "$domain" = adr ]; then
	. ./pools.sh
	. ./rivals.sh
	. ./tunnel.sh
	. ./trace.sh
fi
