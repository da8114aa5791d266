# SPDX-License-Identifier: BSD-2-Clause
# librpma and the provider over verbs on one device. Prints figures, which are
# no pass criterion on an emulated machine.
# shellcheck shell=sh
# shellcheck disable=SC2154

# All figures take minutes. A file for --tests sets rivals=whole first.
node=10.9.0.1
seconds=10 path=/nowhere # where callgrind writes figures
writes=320
[ "${rivals:-}" != whole ] || seconds=60 path=$PATH writes=9600
# Two polling programs leave the device no processor time: give them idle
# priority.
first="chrt --idle 0"

said() { sed 's/^/# /' "$1" >&3; } # said FILE: its lines, as notes

note "librpma"
for size in 64 4096; do
	# shellcheck disable=SC2086
	t "librpma over verbs, $size bytes" $first \
		"$here/fabtests/benchmarks/rivals" $size 50 "$dax" $node
	said $out
done

# The time that rpmem_wr_flush() adds to a device's FLUSH: one run with both.
note "FLUSH through the shim"
if [ -x flush ]; then
	# shellcheck disable=SC2086
	$first timeout -k 1 $deadline "$here/fabtests/vm/shim_cost" rxe0 1 \
		"$dax" "${flushes:-500}" --json /tmp/shim_cost.json >$out 2>&1
	said $out
	said /tmp/shim_cost.json
	good=ok
	grep -q '^shim_native_vs_wr_flush [0-9.]* <= ' $out || good="not ok"
	report "$good" "FLUSH, and through the shim"
else
	skip "FLUSH, and through the shim" "rdma-core of this release has none"
fi

# The placement and the fence of rxe are declared, not measured.
printf '%s\n' '[host]' 'assert placement = dma-memory' 'assert fence = yes' \
	>/tmp/by-dma

# beside fence|agent|write VARIABLE...: durable writes through the shim and
# through librpma. In its turn librpma's target polls. In the shim's turn the
# target polls for as long, though it might sleep.
beside() {
	how=$1
	shift
	# shellcheck disable=SC2086
	$first timeout -k 1 $deadline env FI_OFI_RPMEM_NATIVE=0 "$@" \
		"$here/fabtests/vm/shim_rivals" rxe0 1 "$dax" $node "$how" \
		$writes >$out 2>&1
	code=$?
	said $out
	if [ $code = 77 ]; then
		skip "librpma and the shim's $how" "built without librpma"
		return
	fi
	good=ok
	[ $code = 0 ] && grep -q \
		"^shim_${how}_vs_librpma_[a-z]* [0-9.]* <= " $out || good="not ok"
	report "$good" "librpma and the shim's $how"
}
note "librpma and the shim"
beside fence FI_OFI_RPMEM_OPERATOR=/tmp/by-dma
beside agent FI_OFI_RPMEM_SPIN=2000
beside write FI_OFI_RPMEM_SPIN=2000

# suite METHOD METRICS VARIABLE...: each of these metrics must be a number
suite() {
	method=$1 metrics=$2
	shift 2
	# Status 1 means that metrics of the other method are missing.
	# shellcheck disable=SC2086
	$first timeout -k 1 $deadline env -C /root/disk PATH=$path \
		FI_OFI_RXM_USE_SRX=1 FI_UNIVERSE_SIZE=4 "$@" \
		"$here/fabtests/benchmarks/suite" suite --rivals --base verbs \
		--method "$method" --address $node --dax "$dax" \
		--seconds $seconds >$out 2>&1
	code=$?
	said $out
	good=ok
	[ $code -le 1 ] || good="not ok"
	for metric in $metrics; do
		grep -q "^$metric .*<= *[0-9.]* *[0-9]" $out || good="not ok"
	done
	report "$good" "librpma and a commit by $method"
}
suite agent-clwb "agent_vs_librpma_gpspm agent_vs_librpma_gpspm_4KiB" \
	FI_OFI_RPMEM_NATIVE=0
# Keep small writes out of requests: they would need no fence.
suite fence fence_vs_librpma_flush FI_OFI_RPMEM_NATIVE=0 \
	FI_OFI_RPMEM_INLINE=0 \
	FI_OFI_RPMEM_OPERATOR=/tmp/by-dma
