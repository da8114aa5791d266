# SPDX-License-Identifier: BSD-2-Clause
# The recipes of docs/operating.md for networks on which others can read:
# WireGuard and IPsec between two network namespaces; sourced by tests.sh.

near=10.9.4.1 far=10.9.4.2 key_file=/tmp/secret
ip netns add far
ip link add near type veth peer name far netns far
ip address add $near/24 dev near
ip link set near up
ip -n far address add $far/24 dev far
ip -n far link set far up
ip -n far link set lo up
(umask 077 && head -c 32 /dev/urandom | base64 >$key_file)
head -c 3000000 /dev/urandom >/tmp/sent

# carried NAME ADDRESS COMMAND...: a copy from the other namespace to a daemon
# at ADDRESS succeeds, and COMMAND, which prints the tunnel's byte count, has
# counted its bytes.
carried() {
	name=$1 address=$2
	shift 2
	rm -f /root/disk/pool port
	env -u FI_TCP_IFACE util/fi_rpmemd --port 0 --port-file port --create 4M \
		--listen "$address" --secret $key_file /root/disk/pool \
		>daemon.out 2>&1 &
	daemon=$!
	for _ in $(seq 100); do
		[ -e port ] && break
		sleep 0.1
	done
	before=$("$@")
	t "$name: a copy" ip netns exec far env -u FI_TCP_IFACE util/fi_rpmem_cp \
		--secret $key_file /tmp/sent "$address:$(cat port):pool"
	bytes=$(($("$@") - before))
	is "$name: its bytes are in the tunnel" \
		"$([ "$bytes" -ge 3000000 ] && echo yes || echo "$bytes")" yes
	kill $daemon
	wait $daemon
	rm -f /root/disk/pool
}

wireguard() {
	modprobe wireguard || return
	wg genkey >/tmp/near.key
	wg genkey >/tmp/far.key
	ip link add wg0 type wireguard
	ip -n far link add wg0 type wireguard
	ip address add 10.9.5.1/24 dev wg0
	ip -n far address add 10.9.5.2/24 dev wg0
	wg set wg0 listen-port 51820 private-key /tmp/near.key \
		peer "$(wg pubkey </tmp/far.key)" allowed-ips 10.9.5.2/32 \
		endpoint $far:51820
	ip netns exec far wg set wg0 listen-port 51820 \
		private-key /tmp/far.key peer "$(wg pubkey </tmp/near.key)" \
		allowed-ips 10.9.5.1/32 endpoint $near:51820
	ip link set wg0 up
	ip -n far link set wg0 up
}
wg_bytes() { wg show wg0 transfer | awk '{ print $2 }'; }

# ipsec FROM TO SPI in|out [-n NAMESPACE]: set up one direction at one end
ipsec() {
	from=$1 to=$2 spi=$3 direction=$4
	shift 4
	ip "$@" xfrm state add src "$from" dst "$to" proto esp spi "$spi" \
		mode transport aead 'rfc4106(gcm(aes))' "$(cat "/tmp/key.$spi")" 128 &&
		ip "$@" xfrm policy add src "$from" dst "$to" dir "$direction" \
			tmpl src "$from" dst "$to" proto esp mode transport
}
both_ways() {
	for spi in 0x101 0x102; do
		echo "0x$(od -An -v -tx1 -N20 /dev/urandom | tr -d ' \n')" \
			>/tmp/key.$spi
	done
	modprobe esp4
	ipsec $near $far 0x101 out && ipsec $far $near 0x102 in &&
		ipsec $near $far 0x101 in -n far &&
		ipsec $far $near 0x102 out -n far
}
ipsec_bytes() {
	ip -s xfrm state get src $far dst $near proto esp spi 0x102 |
		sed -n 's/^[[:space:]]*\([0-9]*\)(bytes), .*/\1/p' | tail -1
}

note "tunnels"
long "WireGuard" wireguard && carried WireGuard 10.9.5.1 wg_bytes
long "IPsec" both_ways && carried IPsec $near ipsec_bytes
ip link delete near
ip netns delete far
# For libfabric 2.1 over verbs: it reads the link address of each interface, and
# this tunnel has none, which ends in a segmentation fault.
ip link delete wg0
