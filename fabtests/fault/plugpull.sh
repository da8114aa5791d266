#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# fi_rpmem_plugpull with a target that loses all bytes that no msync covered:
# COMMAND kills fi_rpmemd, its pool becomes what msync had covered, and
# fi_rpmemd starts again. No acknowledged byte is lost; the control loses bytes;
# a planted loss is found and named, and so is a reader that gets old bytes.
# usage: plugpull.sh [CYCLES]
set -u
cycles=${1:-5}
[ -z "${RP_SANITIZE:-}" ] || cycles=2
dir=$(mktemp -d ./plugpull.XXXXXX) || exit 99
cd "$dir" || exit 99
seed=${RP_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
failed=0 n=0
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
pull=../util/fi_rpmem_plugpull

finish()
{
	[ ! -s daemon ] || kill -9 "$(cat daemon)" 2>/dev/null
	cd .. && rm -rf "$dir"
}
trap finish EXIT

# ok NAME COMMAND...: the command must succeed.
ok()
{
	name=$1
	n=$((n + 1))
	shift
	if "$@"; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name (RP_SEED=$seed)"
		sed 's/^/# /' out err
		failed=1
	fi
}

# serve.sh PORT: start the daemon under the shadow, without the flush as long as
# the file noflush exists.
mkdir fault || exit 99
ln -s "$PWD/../fabtests/fault/.libs/librpmem-fault-fi.so" fault/ || exit 99
cat >serve.sh <<END
rm -f ready
[ ! -e noflush ] || export FI_PROVIDER_PATH='$PWD/fault' RPMEM_FAULT=skip-flush
RPMEM_SHADOW=vol:vol.safe \\
LD_PRELOAD='${RP_PRELOAD:-}$PWD/../fabtests/fault/.libs/libshadow.so' \\
	../util/fi_rpmemd --port \$1 --port-file ready vol >>daemon.out 2>&1 &
echo \$! >daemon
for _ in \$(seq 400); do
	[ -e ready ] && exit 0
	sleep 0.05
done
exit 1
END

# stop.sh SIGNAL: end the daemon. It may remain a zombie until init reaps it.
cat >stop.sh <<'END'
kill -"$1" "$(cat daemon)"
while grep -q '^State:.[^Z]' "/proc/$(cat daemon)/status" 2>/dev/null; do
	sleep 0.01
done
END

# cut.sh [keep]: cut the power and restore it. With keep the memory survives.
# While the file plant exists, one byte is lost.
cat >cut.sh <<'END'
sh stop.sh KILL
[ "${1:-}" = keep ] && cp vol vol.safe
cp vol.safe vol
[ ! -e plant ] || python3 plant.py
exec sh serve.sh "$(cat port)"
END

# plant.py: on the medium, change the first byte of an acknowledged record: the
# newest one that began after all other records of that byte had ended.
cat >plant.py <<'END'
records = {}
for number, line in enumerate(open("plugpull.ledger", encoding="ascii")):
    w = line.split()
    if w[0] in "WZ":
        records[int(w[2])] = [int(w[3]), int(w[4]), w[0], number, None]
    elif w[0] == "A":
        records[int(w[1])][4] = number
for seq, (at, _, kind, begin, end) in sorted(records.items(), reverse=True):
    if kind == "W" and end and all(
            other == seq or not o <= at < o + n or (e and e < begin)
            for other, (o, n, _, _, e) in records.items()):
        break
else:
    raise SystemExit("no record covers a byte alone")
for name in "vol", "vol.safe":
    with open(name, "r+b") as f:
        f.seek(65536 + at)
        byte = f.read(1)[0]
        f.seek(65536 + at)
        f.write(bytes([byte ^ 0x55]))
with open("planted", "w", encoding="ascii") as f:
    f.write(f"offset {at}: record {seq} is lost there")
END

: >daemon.out
../util/fi_rpmemd --port 0 --port-file ready --create 2M vol >daemon.out 2>&1 &
daemon=$!
for _ in $(seq 400); do
	[ -e ready ] && break
	sleep 0.05
done
[ -e ready ] || { cat daemon.out; exit 1; }
cp ready port
grep -q '^vol .* power ' daemon.out || {
	kill $daemon
	echo "SKIP: no file system here on which msync reaches a disk"
	exit 77
}
kill $daemon && wait $daemon
cp vol vol.safe
sh serve.sh "$(cat port)" || { cat daemon.out; exit 1; }

# run CODE OPTION...: run the tool; it must exit with CODE within two minutes.
run()
{
	code=$1
	shift
	timeout 120 $pull --seed "$seed" --area 1M "$@" \
		127.0.0.1:"$(cat port)":vol >out 2>err
	[ $? -eq "$code" ]
}

lost_nothing()
{
	run 0 --cut 'sh cut.sh' --cycles "$cycles" --seconds 1 &&
		[ "$(grep -c '^cycle .* acknowledged, 0 of' out)" -eq "$cycles" ] &&
		! grep -q ' 0 records acknowledged' out &&
		! grep -q 'visible 0 of' out &&
		grep -q '^verdict: nothing acknowledged is lost' out &&
		[ ! -e plugpull.ledger ]
}
ok "nothing acknowledged is lost in $cycles cuts" lost_nothing
sed 's/^/# /' out

# The target runs again long before COMMAND returns. In that time a writer that
# reconnects would rewrite the bytes that its library has kept.
control_loses()
{
	run 0 --cut 'sh cut.sh; sleep 3' --control --seconds 1 &&
		grep -q '^verdict: the control has lost [1-9]' out &&
		grep -q 'gone [1-9][0-9]* of' out && [ ! -e plugpull.ledger ]
}
ok "the control loses" control_loses
sed 's/^/# /' out
rm -f plugpull.ledger

# The control cannot lose bytes if memory survives the cut, because every
# completed write is there.
kept()
{
	run 10 --cut 'sh cut.sh keep' --control --seconds 1 &&
		grep -q 'the control has lost nothing' err
}
ok "a control that loses nothing fails" kept
rm -f plugpull.ledger

# A target that acknowledges bytes that it has not flushed.
noflush()
{
	: >noflush
	sh cut.sh && run 10 --cut 'sh cut.sh' --seconds 1 &&
		grep -q 'acknowledged bytes are lost' err
	same=$?
	rm -f noflush plugpull.ledger
	sh cut.sh
	return $same
}
ok "a target that flushes nothing is found out" noflush

planted()
{
	: >plant
	run 10 --cut 'sh cut.sh' --seconds 1
	same=$?
	rm plant
	[ $same -eq 0 ] && grep -q "$(cat planted);" out &&
		grep -q '1 acknowledged bytes are lost' err
}
ok "a planted loss is found and named" planted

# The small reads of the other client are planted with old bytes. Nothing is lost,
# and all the same the run fails.
stale()
{
	rm -f plugpull.ledger
	LD_PRELOAD=${RP_PRELOAD:-}$PWD/../fabtests/fault/.libs/libstale_reader.so \
		run 10 --cut 'sh cut.sh' --cycles 3 --seconds 1 &&
		grep -q '^cycle .* acknowledged, 0 of' out &&
		[ "$(grep -c '^cycle ' out)" -eq 1 ] &&
		grep -q ': [1-9][0-9]* completed writes were not visible to another client$' err
}

# Another process reads the loss from the ledger of that run.
judged()
{
	sh cut.sh
	run 10 --judge plugpull.ledger && grep -q "$(cat planted);" out
}
ok "a ledger is judged later" judged
ok "a reader that gets old bytes is found out" stale

# COMMAND cuts nothing, or fails: the ledger is kept for a later judgement.
broken()
{
	rm -f plugpull.ledger
	run 9 --cut true --wait 1 --seconds 1 &&
		grep -q 'not been started again' err &&
		rm plugpull.ledger &&
		run 9 --cut 'sh cut.sh; false' --seconds 1 && grep -q -e --judge err &&
		run 3 --cut true && grep -q 'judge the cut' err &&
		run 0 --judge plugpull.ledger
}
ok "a run that ends early can be judged" broken
rm -f plugpull.ledger

# A daemon that is stopped regularly writes everything back: that is no cut.
orderly()
{
	run 1 --seconds 1 --cut 'sh stop.sh TERM; sh serve.sh $(cat port)' &&
		grep -q 'stopped in order' err
}
ok "an orderly stop is no cut" orderly

json()
{
	run 0 --json --cut 'sh cut.sh' --seconds 1 &&
		python3 -c '
import json, sys
o = json.load(open("out"))
c = o["cycles"][0]
sys.exit(not (o["result"] == "ok" and c["records_acknowledged"] > 0 and
              c["bytes_lost"] == 0 and o["class"] == "power"))'
}
ok "--json is an object" json
exit $failed
