# SPDX-License-Identifier: BSD-2-Clause
# Judges the packets of durable writes in the kernel trace of trace.sh.
#
# awk -v method=fence|native|agent -f trace.awk LOG
#
# A mark "durable ADDR LEN" precedes each write, and "over" follows the last
# one. The packets of a write are those up to the next mark. For each kind of
# fault, over all writes, prints "ok - " or "not ok - " with the first faulty
# write, and the number of writes. Packets with the same number count once.

# The kernel prints bytes in wire order, most significant first: swap each word.
# No number in this script exceeds 2^53.
function word(text,    i, value) {
	sub(/^0x/, "", text)
	while (length(text) < 8)
		text = "0" text
	for (i = 7; i > 0; i -= 2)
		value = value * 256 + byte(substr(text, i, 2))
	return value
}
function byte(two) {
	two = tolower(two)
	return (index("0123456789abcdef", substr(two, 1, 1)) - 1) * 16 + \
		index("0123456789abcdef", substr(two, 2, 1)) - 1
}
function field(name,    text) {
	if (!match($0, " " name "=[0-9a-fx]+"))
		return ""
	text = substr($0, RSTART, RLENGTH)
	sub(/.*=/, "", text)
	return text
}

function fault(what) {
	if (!(what in faults))
		faults[what] = "write " writes ": " seen
	found[what]++
}

function begin(addr, len) {
	from = addr + 0; to = from + len
	to_target = ""; seen = ""
	written = reads = flushes = requests = replies = answered = after = 0
	split("", sent)
}

function end() {
	if (!writes)
		return
	if (method == "fence") {
		if (written != to - from)
			fault("every byte is written, once")
		if (reads != 1)
			fault("one read")
		if (!answered)
			fault("the read comes back")
	} else if (method == "native") {
		if (written != to - from)
			fault("every byte is written, once")
		if (flushes != 1)
			fault("one flush")
		if (!answered)
			fault("the flush comes back")
	} else {
		if (written && written != to - from)
			fault("every byte is written, once")
		if (requests != 1)
			fault("one request")
		if (replies != 1)
			fault("one reply")
	}
	if (after)
		fault("one round trip")
}

# All packets to the target must use one connection.
function same_connection(qp) {
	if (to_target == "")
		to_target = qp
	if (qp != to_target)
		fault("one connection")
}

function write_packet(op, qp) {
	seen = seen " write"
	same_connection(qp)
	if (reads || flushes || requests)
		fault("behind the writes")
	if (answered || replies)
		after = 1
	if (op == 6 || op == 10) { # first or only packet: it has the address
		if (place("va") < from || place("va") + word(field("len")) > to)
			fault("inside the range")
		written += word(field("len"))
	}
}

function place(name) {
	return word(field(name "h")) * 4294967296 + word(field(name "l"))
}

function read_packet(qp,    len) {
	len = word(field("len"))
	seen = seen " read of " len
	if (method != "fence")
		fault("no read")
	same_connection(qp)
	if (!written)
		fault("behind the writes")
	if (!len)
		fault("a read of no bytes reaches no memory")
	if (place("va") < from || place("va") + len > to)
		fault("inside the range")
	if (answered)
		after = 1
	reads++
}

# In a FLUSH its type, 4 bytes, precedes the address.
function flush_packet(qp,    at, len) {
	at = word(field("val")) * 4294967296 + word(field("rkey"))
	len = word(field("flen"))
	seen = seen " flush of " len
	if (method != "native") {
		fault("nothing else")
		return
	}
	same_connection(qp)
	if (!written)
		fault("behind the writes")
	if (at != from || at + len != to)
		fault("all of the range")
	if (word(field("vah")) != 3) # must be both types, for a range
		fault("to persistence, and seen by all")
	if (answered)
		after = 1
	flushes++
}

# Count a message at its last packet.
function send_packet(op, qp) {
	seen = seen " send"
	if (method != "agent") {
		fault("no message")
		return
	}
	if (to_target == "")
		to_target = qp
	if (op != 2 && op != 3 && op != 4 && op != 5)
		return
	if (requests && qp != to_target) {
		replies++
		return
	}
	same_connection(qp)
	if (replies)
		after = 1
	requests++
}

/tracing_mark_write: durable / {
	end()
	sub(/.*: durable /, "")
	begin($1, $2)
	writes++
	next
}
/tracing_mark_write: over / {
	exit
}
/ tx: / && writes {
	op = field("op") + 0
	qp = field("qpn")
	# A queue pair retransmits a packet that nobody has acknowledged in
	# time.
	if (op != 17 && sent[op, qp, field("psn")]++)
		next
	if (op >= 6 && op <= 11)
		write_packet(op, qp)
	else if (op == 12)
		read_packet(qp)
	else if (op <= 5)
		send_packet(op, qp)
	else if (op >= 13 && op <= 16) {
		seen = seen " response"
		if (reads || flushes)
			answered = 1
	} else if (op == 28) {
		flush_packet(qp)
	} else if (op != 17)
		fault("nothing else")
}
END {
	end()
	rules = "every byte is written, once|behind the writes|inside the range|" \
		"one connection|one round trip|nothing else|"
	if (method == "fence")
		rules = rules "one read|a read of no bytes reaches no memory|" \
			"the read comes back|no message"
	else if (method == "native")
		rules = rules "one flush|all of the range|no read|no message|" \
			"to persistence, and seen by all|the flush comes back"
	else
		rules = rules "one request|one reply|no read"
	n = split(rules, rule, "|")
	for (i = 1; i <= n; i++) {
		if (rule[i] in faults)
			print "not ok - " method ": " rule[i] " (" \
				found[rule[i]] " times; " faults[rule[i]] ")"
		else
			print "ok - " method ": " rule[i]
	}
	print (writes > 0 ? "ok" : "not ok") " - " method ": writes were traced" \
		(writes > 0 ? "" : ", none")
	print "# " writes + 0 " writes; the last:" seen
}
