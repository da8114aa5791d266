# SPDX-License-Identifier: BSD-2-Clause
# Two machines on a separate network. The machine with the memory dies and
# restarts; sourced by guest.sh.

# on_net MAC OPTION: add options that connect a machine to the network
on_net() {
	options+=(-netdev "socket,id=net,$2"
		-device "virtio-net-pci,netdev=net,mac=52:54:00:00:00:$1,romfile=")
}

# machine_with_memory SUITE LIFE: start the target's machine
machine_with_memory() {
	local role=-target options=()

	nvdimm=$work/nvdimm
	outside board "$work/board" 1M
	on_net 01 "connect=127.0.0.1:$port"
	machine "$1" adr "rp.stage=target rp.life=$2" "${options[@]}"
}

# noted FILE TEXT: does FILE have a note that ends with TEXT?
noted() {
	tr -d '\r' <"$1" 2>/dev/null | grep -q "^# .*$2\$"
}

# until_noted FILE TEXT: wait for a note, as long as both machines run
until_noted() {
	local start=$SECONDS

	until noted "$1" "$2"; do
		kill -0 "$child" 2>/dev/null && kill -0 "$other" 2>/dev/null &&
			[ $((SECONDS - start)) -lt "$limit" ] || return
		sleep 0.2
	done
}

# two SUITE: run and judge both machines
two() {
	local suite=$1 start=$SECONDS port options role console results
	local name="$suite, two machines" initiators

	rm -f "$work/board"
	truncate -s 1M "$work/board"
	# The listening machine is kept when the other one restarts. It ends at
	# once if its port is in use: then try another port.
	for _ in 1 2 3 4 5; do
		new_nvdimms
		nvdimm=$work/other role=-initiator options=()
		truncate -s 128M "${nvdimm}0" "${nvdimm}1"
		port=$((RANDOM % 20000 + 20000))
		outside board "$work/board" 1M
		on_net 02 "listen=127.0.0.1:$port"
		machine "$suite" adr rp.stage=initiator "${options[@]}"
		other=$child initiators=$results
		sleep 1
		kill -0 "$other" 2>/dev/null && break
	done
	machine_with_memory "$suite" 1
	if ! until_noted "$initiators" enough ||
		! until_noted "$initiators" "pool waits for the cut" ||
		! until_noted "$initiators" "control waits for the cut"; then
		if [ "${again:-0}" -lt 2 ] && { ! lived "$console" ||
			! lived "${console/-target/-initiator}"; }; then
			echo "# $name: a kernel did not start, or panicked: once more"
			unplug
			child=$other other=
			unplug
			again=$((${again:-0} + 1)) two "$suite"
			return
		fi
		broken "$name: not enough was acknowledged"
		unplug
	else
		unplug
		echo "# $name: the one with the memory was killed after $((SECONDS - start)) s"
		for _ in 1 2 3; do
			machine_with_memory "$suite" 2
			until grep -qs '^guest is up' "$console" ||
				! kill -0 "$child" 2>/dev/null; do
				sleep 0.5
			done
			started "$console" && break
			unplug
		done
	fi
	follower=$child child=$other # watch the initiator's machine
	console=$build/$suite-adr-initiator.console results=$initiators
	watch
	other=
	verdict "$name" "$start"
	child=$follower follower=
	unplug
}
