# SPDX-License-Identifier: BSD-2-Clause
# librpma and the provider over verbs on one device: what each takes. The figures
# are said; an emulated machine decides nothing by them.
# shellcheck shell=sh
# shellcheck disable=SC2154

# All figures take minutes: a file for --tests sets rivals=whole before this.
node=10.9.0.1
seconds=10 path=/nowhere # callgrind is what takes them
[ "${rivals:-}" != whole ] || seconds=60 path=$PATH
# Two programs that poll leave the device's work no processor: it goes first.
first="chrt --idle 0"

said() { sed 's/^/# /' "$1" >&3; } # FILE: its lines, as notes

note "librpma"
for size in 64 4096; do
	# shellcheck disable=SC2086
	t "librpma over verbs, $size bytes" $first \
		"$here/fabtests/benchmarks/rivals" $size 50 "$dax" $node
	said $out
done

# Status 1: some figures were not obtained, and the report says which.
# shellcheck disable=SC2086
$first timeout -k 1 $patience env -C /root/disk PATH=$path \
	FI_OFI_RXM_USE_SRX=1 FI_UNIVERSE_SIZE=4 \
	"$here/util/fi_rpmem_bench" suite --rivals --base verbs \
	--address $node --dax "$dax" --seconds $seconds \
	--json /tmp/rivals.json >$out 2>&1
code=$?
said $out
# What is there is a number; the fence may be for want of a method.
missing=$(sed -n 's/^agent_vs_librpma_[a-zA-Z0-9_]* .*  - .*/&/p' $out)
[ $code -le 1 ] && [ -z "$missing" ] &&
	grep -q '^agent_vs_librpma_gpspm_4KiB .*[0-9]' $out &&
	report ok "the provider and librpma over verbs" ||
	report "not ok" "the provider and librpma over verbs"
