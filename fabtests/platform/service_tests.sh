#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Run by systemd in a root where this project is installed: fi_rpmemd as its
# service. See service_boot.sh.
set -u -o pipefail

passed=0 failed=0
unit=fi_rpmemd.service
drop=/run/systemd/system/$unit.d
pools=/var/lib/ofi_rpmem
program=$(command -v fi_rpmemd)
host=127.0.0.1:18620
writer=/build/fabtests/fault/.libs/pool_writer
export FI_TCP_IFACE=lo RP_SEED=7
# Packages are in the folders that the dynamic linker searches by itself.
[ -d /out/packages ] || export LD_LIBRARY_PATH=/usr/local/lib

finish() {
	echo "$passed passed, $failed failed, 0 skipped"
	[ "$failed" = 0 ]
	exit
}

# ok WHAT: the checks since the last call; why says which one failed.
why=
ok() {
	if [ -z "$why" ]; then
		echo "ok - $1"
		passed=$((passed + 1))
		return
	fi
	echo "not ok - $1: $why"
	failed=$((failed + 1))
	why=
	systemctl status --no-pager -l $unit | sed 's/^/# /'
	journalctl -b -u $unit -n 20 -o short-monotonic | sed 's/^/# /'
}

# must WHAT COMMAND...
must() {
	local what=$1

	shift
	"$@" >/out/must.log 2>&1 || why=${why:-$what ($(tail -1 /out/must.log))}
}

# A unit that neither starts nor stops ends the wait.
systemctl() {
	timeout 60 systemctl "$@"
}

# until_true COMMAND...: wait; false after a minute.
until_true() {
	local i

	for i in $(seq 1200); do
		"$@" >/dev/null 2>&1 && return
		sleep 0.05
	done
	echo "did not happen: $*"
	return 1
}

# configure NAME LINE...: a drop-in of the unit.
configure() {
	local name=$1

	shift
	mkdir -p $drop
	printf '%s\n' '[Service]' "$@" >$drop/"$name".conf
	systemctl daemon-reload
}

# command_line ARGUMENT...: what the unit runs, without the configuration.
command_line() {
	# shellcheck disable=SC2016 # systemd expands $MAINPID
	configure command ExecStart= ExecReload= \
		"ExecStart=$program $*" \
		'ExecReload=kill -HUP $MAINPID'
}

prop() {
	systemctl show -P "$1" $unit
}

# journal [MATCH...]: messages of the service since its last start
journal() {
	journalctl --sync
	journalctl -b -o cat "_SYSTEMD_INVOCATION_ID=$(prop InvocationID)" "$@"
}
said() { # TEXT [MATCH...]
	local text=$1

	shift
	journal "$@" | grep -- "$text" >/dev/null
}

copy() { # POOL [OPTION...]
	local pool=$1

	shift
	fi_rpmem_cp --quiet "$@" /out/file $host:"$pool" &&
		fi_rpmem_cp --quiet "$@" --length 3000000 $host:"$pool" /out/back &&
		cmp /out/file /out/back
}

restarted() { # COUNT
	[ "$(prop NRestarts)" -gt "$1" ] && [ "$(prop ActiveState)" = active ]
}

head -c 3000000 /dev/urandom >/out/file
[ -d /out/packages ] || systemd-sysusers
mkdir -p /etc/ofi_rpmem
: >/etc/ofi_rpmem/rpmemd.conf
chown ofi_rpmem: /srv/pools
# shellcheck source=/dev/null
. /out/trust.sh
trust_folder fi_rpmem_info $pools || { echo "not ok - nothing is durable here"; failed=1; finish; }
configure trust "Environment=FI_TCP_IFACE=lo FI_OFI_RPMEM_TRUST_FS=${FI_OFI_RPMEM_TRUST_FS:-}"
echo "# $(systemctl --version | head -1);" \
	"$(systemd-analyze security --no-pager $unit 2>/dev/null | tail -1)"

# --- what is installed ---

# package_of PATH: print its package. dpkg knows a file by the name in the package,
# which may be that without /usr.
package_of() {
	dpkg -S "$1" 2>/dev/null || dpkg -S "${1#/usr}" 2>/dev/null || dpkg -S "/usr$1"
}
if [ -d /out/packages ]; then
	path=$(prop FragmentPath)
	package_of "$path" | grep -q '^ofi-rpmem-tools: ' || why="$path is of no package"
	[ "$program" = /usr/bin/fi_rpmemd ] || why=${why:-the daemon is $program}
	prop ExecStart | grep -q " argv\[\]=$program --config /etc/ofi_rpmem/rpmemd.conf " ||
		why=${why:-the unit starts $(prop ExecStart)}
	getent passwd ofi_rpmem >/dev/null || why=${why:-no user was made}
	must "enabled" systemctl is-enabled $unit
	[ ! -e /usr/local/lib/libfabric ] || why=${why:-a provider in /usr/local}
	ok "the unit, the user and the programs are those of the packages"
fi
[ "$(prop LogRateLimitIntervalUSec) $(prop LogRateLimitBurst)" = "30s 300" ] ||
	why="$(prop LogRateLimitIntervalUSec) $(prop LogRateLimitBurst)"
ok "systemd limits the service to 300 lines in 30 s"

# --- start ---

command_line --create 8M $pools/vol
# systemd connects as soon as it has learned that the daemon is ready; without
# the sandbox (+) no time goes by.
configure post "ExecStartPost=+bash -c 'exec 3<>/dev/tcp/127.0.0.1/18620'"
must "a connection right after readiness" systemctl start $unit
must "a client right after the start" \
	fi_rpmem_cp --quiet --wait 0 /out/file $host:vol
must "restart" systemctl restart $unit
rm $drop/post.conf
systemctl daemon-reload
must "copy" copy vol
must "status" grep -q '1 pools on 127.0.0.1 port 18620' <(prop StatusText)
[ "$(stat -c '%U %a' $pools $pools/vol | tr '\n' ' ')" = "ofi_rpmem 700 ofi_rpmem 600 " ] ||
	why=${why:-owner and mode: $(stat -c '%U %a' $pools $pools/vol)}
ok "the unit is active when clients can connect"

# --- class ---

under=$(journal | grep '^vol ' | tail -1)
must "stop" systemctl stop $unit
[ "$(prop Result) $(prop ExecMainStatus)" = "success 0" ] || why=${why:-$(prop Result)}
fi_rpmemd --port 0 --port-file /out/port $pools/vol >/out/outside &
daemon=$!
must "a daemon without systemd" until_true test -e /out/port
kill $daemon && wait $daemon
outside=$(grep '^vol ' /out/outside)
echo "# $outside"
[ -n "$outside" ] && [ "$under" = "$outside" ] ||
	why=${why:-"under the unit '$under', without it '$outside'"}
chown ofi_rpmem: $pools/vol
ok "the class of a pool under the unit is that without it"

# --- kill, hang ---

# The writer compares a new pool with its model.
for end in KILL STOP; do
	# A hang must be found by a short test.
	[ $end = KILL ] || configure watchdog WatchdogSec=2s
	command_line --create 8M $pools/$end
	must "start" systemctl restart $unit
	timeout 200 $writer $host:$end power 500 write >/out/writer 2>&1 &
	client=$!
	must "the client writes" until_true grep -q '^round 100$' /out/writer
	before=$(prop NRestarts)
	kill -$end "$(prop MainPID)"
	must "systemd restarts it" until_true restarted "$before"
	wait $client || why=${why:-the client failed: $(tail -1 /out/writer)}
	grep -q '^[1-9][0-9]* reconnects' /out/writer ||
		why=${why:-the client lost no connection}
	must "bytes" timeout 200 $writer $host:$end power 500 check
	case $end in
	KILL) ok "a killed daemon is started again, and clients go on" ;;
	STOP)
		journalctl --sync
		journalctl -b -u $unit |
			grep "Watchdog timeout" >/dev/null || why=${why:-no watchdog}
		ok "the watchdog finds a hung daemon, and clients go on"
		;;
	esac
done
before=$(prop NRestarts)
sleep 4
[ "$(prop NRestarts)" = "$before" ] || why="it was restarted"
ok "an idle daemon keeps the watchdog quiet"
rm $drop/watchdog.conf

# --- reload ---

command_line $pools/vol
must "restart" systemctl restart $unit
pid=$(prop MainPID)
truncate -s +8M $pools/vol
must "reload" systemctl reload $unit
must "the pool grows" until_true said 'has 16 MiB now' PRIORITY=5
must "active again" until_true systemctl is-active $unit
[ "$(prop MainPID)" = "$pid" ] || why=${why:-another process}
must "copy" copy vol
ok "a reload makes a pool larger, without a restart"

# --- the configuration ---

# The unit itself, without a command line of this test.
rm $drop/command.conf
systemctl daemon-reload
(umask 077 && head -c 32 /dev/urandom | base64 >/out/app && cp /out/app /etc/ofi_rpmem/app)
chown ofi_rpmem: /etc/ofi_rpmem/app
printf '%s\n' '[pool one]' "path = $pools/one" 'create = 8M' >/etc/ofi_rpmem/rpmemd.conf
must "start" systemctl restart $unit
must "copy" copy one
printf '%s\n' '[secret app]' 'file = /etc/ofi_rpmem/app' \
	'[pool two]' "path = $pools/two" 'create = 8M' 'write = app' \
	>/etc/ofi_rpmem/rpmemd.conf
pid=$(prop MainPID)
must "reload" systemctl reload $unit
must "copy with a secret" copy two --secret /out/app
fi_rpmem_cp --quiet --secret /out/app /out/file $host:one 2>/dev/null &&
	why=${why:-a pool that was removed}
echo '[pool' >/etc/ofi_rpmem/rpmemd.conf
systemctl reload $unit 2>/dev/null &&
	why=${why:-a reload of a broken file has succeeded}
must "an error: error" until_true said 'rpmemd.conf:1: ' PRIORITY=3
said 'SIGHUP changes nothing' && why=${why:-the daemon got a broken file}
must "still active" systemctl is-active $unit
must "the former configuration" copy two --secret /out/app
kill -HUP "$pid"
must "the signal alone: error" until_true said 'SIGHUP changes nothing' PRIORITY=3
must "the former configuration" copy two --secret /out/app
[ "$(prop MainPID)" = "$pid" ] || why=${why:-another process}
must "status" grep -q '1 pools on' <(prop StatusText)
: >/etc/ofi_rpmem/rpmemd.conf
ok "a reload makes pools and rights those of rpmemd.conf"
# --- metrics ---

# page WHERE: get the page of metrics there
page() {
	local out

	case $1 in
	unix:*)
		# perl-base of the root has sockets.
		perl -MIO::Socket::UNIX -e '
			my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $!;
			print $s "GET /metrics HTTP/1.0\r\n\r\n";
			$s->flush;
			print while <$s>' "${1#unix:}"
		;;
	*)
		exec {out}<>"/dev/tcp/${1%:*}/${1#*:}" || return
		printf 'GET /metrics HTTP/1.0\r\n\r\n' >&"$out"
		cat <&"$out"
		exec {out}>&-
		;;
	esac
}
for where in 127.0.0.1:9420 unix:/run/ofi_rpmem/metrics; do
	printf '%s\n' "metrics = $where" '[pool one]' "path = $pools/one" \
		>/etc/ofi_rpmem/rpmemd.conf
	must "start" systemctl restart $unit
	must "copy" copy one
	page $where >/out/page
	grep -q '^ofi_rpmem_commit_seconds_count{.*pool="one".*} [1-9]' /out/page ||
		why=${why:-no commits at $where}
done
# Read the daemon's page as its operator does: root, or the unit's user.
pid=$(prop MainPID)
must "--stats as root" grep -q '^ *one .*power by' <(fi_rpmem_info --stats)
must "--stats as the unit's user" grep -q '^ *one .*power by' <(
	setpriv --reuid ofi_rpmem --regid ofi_rpmem --clear-groups \
		fi_rpmem_info --stats="$pid")
setpriv --reuid nobody --clear-groups fi_rpmem_info --stats="$pid" 2>/out/stats &&
	why=${why:-another user reads the counters}
must "the remedy for another user" \
	grep -q "another user's or group's: read its counters as that user and group, or as root" /out/stats
must "stop" systemctl stop $unit
[ ! -e /run/ofi_rpmem ] || why=${why:-/run/ofi_rpmem is left}
: >/etc/ofi_rpmem/rpmemd.conf
ok "metrics are served at a port, at a socket of RuntimeDirectory=, and by --stats"
# The exposure of the unit, in tenths.
must "systemd-analyze security" \
	systemd-analyze security --no-pager --threshold=20 $unit
ok "the exposure that systemd-analyze computes is at most 2.0"
command_line $pools/vol

# --- stop ---

cp /build/fabtests/fault/.libs/librpmem-fault-fi.so /run/librpmem-fi.so
configure slow "Environment=FI_PROVIDER_PATH=/run RPMEM_FAULT=slow-flush" \
	"Environment=RPMEM_FAULT_MS=2000 RPMEM_FAULT_LOG=$pools/flushes"
must "restart" systemctl restart $unit
timeout 200 $writer $host:vol power 1 ledger >/out/writer 2>&1 &
client=$!
must "a commit is executed" until_true test -s $pools/flushes
must "stop" systemctl stop $unit
said 'stopping: accepted commits' PRIORITY=5 || why=${why:-no line about the stop}
[ "$(prop Result) $(prop ExecMainStatus)" = "success 0" ] || why=${why:-$(prop Result)}
# No daemon is left: only a reply to the accepted commit ends the wait.
must "the reply to the commit" until_true grep -q '^acked' /out/writer
kill $client 2>/dev/null
wait $client 2>/dev/null
rm -f $drop/slow.conf $pools/flushes
ok "a stop completes the commit that was accepted"

# --- the sandbox ---

refused() { # FOLDER
	command_line --create 1M "$1/refused"
	systemctl start --no-block $unit
	must "a line with the remedy" until_true said 'ReadWritePaths=FOLDER' PRIORITY=3
	must "stop" systemctl stop $unit
	[ ! -e "$1/refused" ] || why=${why:-$1/refused was made}
}
refused /srv/pools
# A private /tmp would be deleted at the stop, and the pool in it.
refused /tmp
configure paths ReadWritePaths=/srv/pools
command_line --create 8M /srv/pools/added
must "start" systemctl start $unit
must "copy" copy added
rm $drop/paths.conf
ok "a pool elsewhere is refused, and ReadWritePaths= lets it in"

# --- what systemd does not try again ---

before=$(prop NRestarts)
command_line --secret /etc/ofi_rpmem/nothing $pools/vol
must "no start" eval '! systemctl restart $unit'
[ "$(prop ExecMainStatus)" = 7 ] || why=${why:-exit status $(prop ExecMainStatus)}
[ "$(prop ActiveState) $(prop SubState)" = "failed failed" ] ||
	why=${why:-$(prop ActiveState) $(prop SubState)}
ok "a start that cannot succeed is not tried again"

# --- the journal ---

(
	umask 077
	head -c 32 /dev/urandom | base64 >/out/wrong
	head -c 32 /dev/urandom | base64 >/out/right
	cp /out/right /etc/ofi_rpmem/secret
)
chown ofi_rpmem: /etc/ofi_rpmem/secret
command_line --secret /etc/ofi_rpmem/secret $pools/vol
must "start" systemctl restart $unit
must "copy" copy vol --secret /out/right
fi_rpmem_cp --quiet --secret /out/wrong /out/file $host:vol 2>/dev/null &&
	why=${why:-a wrong secret was accepted}
must "opens: notice" until_true said "opens pool 'vol'" PRIORITY=5
must "wrong secret: warning" until_true said 'has a wrong secret' PRIORITY=4
must "exports: information" said '^vol .*' PRIORITY=6
said '<[0-9]>' && why=${why:-a prefix was not understood}
rm $pools/vol
must "withdrawn: error" until_true said "pool 'vol' is withdrawn" PRIORITY=3
configure fault "Environment=FI_PROVIDER_PATH=/run RPMEM_FAULT=fail-flush"
command_line --create 8M $pools/vol
must "start" systemctl restart $unit
fi_rpmem_cp --quiet /out/file $host:vol 2>/dev/null &&
	why=${why:-a copy whose flush failed}
must "a failed flush: warning" \
	until_true said 'ofi_rpmem: .*flushing a region of .* bytes failed' PRIORITY=4
said 'fi_getinfo' && why=${why:-lines of libfabric itself}
rm -f $drop/fault.conf $pools/vol
: >/etc/ofi_rpmem/operator
configure facts "Environment=FI_OFI_RPMEM_OPERATOR=/etc/ofi_rpmem/operator"
must "start" systemctl restart $unit
printf '%s\n' '[host]' 'limit class = process' >/etc/ofi_rpmem/new
mv /etc/ofi_rpmem/new /etc/ofi_rpmem/operator
must "a weaker class: warning" \
	until_true said 'pool vol: class power .* has become process' PRIORITY=4
rm -f $drop/facts.conf /etc/ofi_rpmem/operator $pools/vol
ok "lines in the journal have their level"

command_line --create 8M --secret /etc/ofi_rpmem/secret $pools/vol
must "start" systemctl restart $unit
before=$(journal | wc -l) start=$SECONDS
data=$(ss -Hltn | awk '{ sub(".*:", "", $4); if ($4 != 18620) print $4 }')
for _ in $(seq 30); do
	for port in 18620 $data; do
		head -c 100 /dev/urandom 2>/dev/null >/dev/tcp/127.0.0.1/"$port"
	done
	fi_rpmem_cp --quiet --wait 0 --secret /out/wrong /out/file $host:vol
done 2>/dev/null
lines=$(($(journal | wc -l) - before)) seconds=$((SECONDS - start + 2))
echo "# $lines lines in $seconds s of hostile clients"
[ "$lines" -ge 1 ] && [ "$lines" -le "$seconds" ] || why="$lines lines in $seconds s"
ok "hostile clients write at most one line a second"
must "stop" systemctl stop $unit
finish
