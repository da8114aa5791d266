// SPDX-License-Identifier: BSD-2-Clause
/*
 * A flood of messages or bytes from a peer without key neither uses up a
 * target's memory nor stops the service to its clients.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/testbed_daemon.h"

#define MESSAGES    100000
#define SIZE	    72
#define CONNECTIONS 2000 /* connections of the peer to each port */
#define OPEN	    200	 /* the first so many of them stay open */
#define ROUNDS	    2
#define TIMEOUT	    3000u      /* FI_OFI_RPMEM_TIMEOUT, ms */
#define FLOOD_S	    20	       /* limit of one round, in s */
#define GROWTH_KIB  (64 << 10) /* limit of the target's growth */
#define LEAK_KIB    (16 << 10) /* limit of the growth from round 1 to 2 */

enum flood {
	UNTAGGED,
	TAGGED,
	BYTES,
};

/*
 * The base buffers messages that arrive faster than the target program receives
 * them, and so uses memory. So memory is checked only if the flooding peer
 * waits for the program between bursts, or sends no messages. fi_rpmemd has no
 * endpoint of the base, so only bytes reach it.
 */
static const struct {
	const char *name;
	bool daemon; /* the target is fi_rpmemd */
	enum flood flood;
	unsigned int burst; /* messages in a burst; 0: endless */
	bool memory;	    /* check the target's memory use */
} rows[] = {
	{"a program's memory bears messages of 72 bytes", false, UNTAGGED, 256,
	 true},
	{"a program's memory bears tagged messages with the highest bit", false,
	 TAGGED, 256, true},
	{"a program's memory bears HELLO-like bytes at every port", false,
	 BYTES, 0, true},
	{"a program's clients are served beside messages of 72 bytes", false,
	 UNTAGGED, 0, false},
	{"a program's clients are served beside tagged messages", false, TAGGED,
	 0, false},
	{"fi_rpmemd bears HELLO-like bytes at every port", true, BYTES, 0,
	 true},
};
#define ROWS (sizeof(rows) / sizeof(*rows))

static uint64_t seed;

static void row_name(size_t row, char *name, size_t size)
{
	snprintf(name, size, "%s", rows[row].name);
}

/* The value of one field of /proc/PID/status, in KiB. */
static long status_kib(pid_t pid, const char *field)
{
	char path[64], line[256];
	long kib = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, field, strlen(field)))
			kib = strtol(line + strlen(field) + 1, NULL, 10);
	if (f)
		fclose(f);
	return kib;
}

/* --- the unverified peer, in its own process --- */

/* Send one message and wait for its completion, so the buffer can be reused. */
static bool send_one(struct bed *b, const uint64_t *msg, bool tagged,
		     double end)
{
	static struct bed_op op;
	const int before = op.ends;
	ssize_t ret;

	do {
		ret = tagged ? fi_tsend(b->s.ep, msg, SIZE, NULL, b->s.peer,
					1ull << 63, &op)
			     : fi_send(b->s.ep, msg, SIZE, NULL, b->s.peer,
				       &op);
		if (ret == -FI_EAGAIN)
			bed_poll(b);
	} while (ret == -FI_EAGAIN && bed_now() < end);
	while (!ret && op.ends == before && bed_now() < end)
		bed_poll(b);
	return !ret && op.ends != before && !op.err;
}

/* Send a message that the target counts, and wait until it has. */
static bool send_mark(struct bed *b, _Atomic uint64_t *marks, double end)
{
	const uint64_t mark[SIZE / 8] = {BED_MARK}, seen = atomic_load(marks);

	if (!send_one(b, mark, false, end))
		return false;
	while (atomic_load(marks) == seen && bed_now() < end)
		bed_poll(b);
	return atomic_load(marks) != seen;
}

/* Returns whether the target has received messages of this peer. */
static bool send_messages(const struct card *c, bool tagged, unsigned int burst,
			  _Atomic uint64_t *marks)
{
	const double end = bed_now() + FLOOD_S;
	uint64_t msg[SIZE / 8];
	unsigned int marked;
	int taken = 0;
	struct bed b;

	bed_daemon_visit(&b, c, "tcp");
	marked = send_mark(&b, marks, end);
	for (unsigned int i = 0; i < MESSAGES && bed_now() < end; i++) {
		for (unsigned int k = 0; k < SIZE / 8; k++)
			msg[k] = bed_mix(seed + i, k);
		/*
		 * Every fourth message begins like one of protocol version 1.
		 */
		if (i % 4 == 0)
			memcpy(msg, "RP\1\1H\0\0\0", 8);
		taken += send_one(&b, msg, tagged, end);
		if (!burst || i % burst != burst - 1)
			continue;
		marked += send_mark(&b, marks, end);
	}
	printf("# %d messages taken, %u marks\n", taken, marked);
	return taken && marked;
}

static int connect_to(uint16_t port)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Has the target ended the connection? */
static bool is_ended(int fd)
{
	char bytes[4096];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		;
	return !n || errno != EAGAIN;
}

/* Returns whether the target has ended some of this peer's connections. */
static bool send_bytes(const struct card *c, pid_t pid, uint16_t but)
{
	const double end = bed_now() + FLOOD_S;
	static int fds[16 * OPEN];
	uint8_t msg[4096];
	uint16_t ports[16];
	int n = bed_ports(pid, ports, 16), made = 0, open = 0, ended = 0, fd;
	uint64_t word;

	for (int i = 0; i < CONNECTIONS && bed_now() < end; i++) {
		for (int p = 0; p < n; p++) {
			if (ports[p] == but)
				continue;
			fd = connect_to(ports[p]);
			if (fd < 0)
				continue;
			made++;
			for (size_t k = 0; k < sizeof(msg); k += 8) {
				word = bed_mix(seed + (unsigned int)i, k);
				memcpy(msg + k, &word, 8);
			}
			memcpy(msg, "RP\1\1H\0\0\0", 8);
			word = c->pool_key ^ 1;
			memcpy(msg + 40, &word, 8);
			send(fd, msg, i % 3 ? SIZE : sizeof(msg), MSG_NOSIGNAL);
			if (i < OPEN)
				fds[open++] = fd;
			else
				close(fd);
		}
	}
	/* Keep the open connections for one more second. */
	bed_sleep(1);
	for (int i = 0; i < open; i++)
		ended += is_ended(fds[i]);
	printf("# %d connections to %d ports, %d of %d ended by the target\n",
	       made, n, ended, open);
	return ended;
}

static pid_t unverified_start(size_t row, const struct bed *b, pid_t pid,
			      uint16_t but)
{
	pid_t child = fork();
	bool arrived;

	if (child < 0)
		MUST(-errno);
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (rows[row].flood == BYTES)
		arrived = send_bytes(&b->card, pid, but);
	else
		arrived = send_messages(&b->card, rows[row].flood == TAGGED,
					rows[row].burst, b->marks);
	fflush(stdout);
	_exit(!arrived);
}

/* --- one test row --- */

/* Let the honest client post durable writes until one succeeds. */
static const char *run_honest_client(struct bed *b, int *done)
{
	const double end = bed_now() + BED_RECOVERY_SECONDS;
	struct bed_op *op;
	const uint64_t mark = (uint64_t)*done;
	ssize_t ret = 0;

	do {
		op = calloc(1, sizeof(*op) + 64);
		if (!op)
			MUST(-FI_ENOMEM);
		memcpy(op + 1, &mark, sizeof(mark));
		ret = BED_POST(b, bed_write(b, op + 1, 65536, 64,
					    FI_COMMIT_COMPLETE, op));
		if (!ret && !bed_wait(b, op, BED_DEADLINE))
			return "an honest commit did not end";
		if (!ret && !op->err) {
			free(op);
			++*done;
			return b->wrong;
		}
		bed_pause(b, BED_PAUSE);
	} while (bed_now() < end);
	return bed_says("no honest commit succeeds any more: %zd, status %d",
			ret, op->status);
}

/*
 * Let the honest client commit until the unverified peer has ended, and a while
 * longer.
 */
static const char *flood_once(struct bed *b, pid_t unverified, int *done)
{
	const char *wrong = NULL;
	int status = 0;

	while (!wrong && !waitpid(unverified, &status, WNOHANG)) {
		bed_pause(b, 0.002);
		wrong = run_honest_client(b, done);
	}
	if (!wrong && status)
		wrong = "nothing of the flood is seen to arrive";
	/* The target may still process messages that it has not read yet. */
	for (int i = 0; i < 100 && !wrong; i++) {
		bed_pause(b, 0.005);
		wrong = run_honest_client(b, done);
	}
	return wrong;
}

static const char *flood_rounds(struct bed *b, size_t row, pid_t pid,
				uint16_t but)
{
	long idle, high, after[ROUNDS] = {0};
	const char *wrong = NULL;
	const char *sanitized = getenv("RP_SANITIZE");
	int done = 0, before;

	for (int i = 0; i < 200 && !wrong; i++)
		wrong = run_honest_client(b, &done);
	if (wrong)
		return bed_says("at first: %s", wrong);
	idle = status_kib(pid, "VmRSS");
	for (int i = 0; i < ROUNDS && !wrong; i++) {
		before = done;
		wrong = flood_once(b, unverified_start(row, b, pid, but),
				   &done);
		after[i] = status_kib(pid, "VmRSS");
		printf("# %s: %ld MiB when idle, %ld after round %d, %d honest "
		       "commits\n",
		       rows[row].name, idle >> 10, after[i] >> 10, i + 1,
		       done - before);
	}
	high = status_kib(pid, "VmHWM");
	/* Memory is not checked under sanitizers, which keep freed memory. */
	if (wrong || !rows[row].memory || (sanitized && *sanitized))
		return wrong;
	if (high < 0)
		return "the target has died";
	if (high > idle + GROWTH_KIB)
		return bed_says("the target grows from %ld to %ld MiB",
				idle >> 10, high >> 10);
	if (after[1] > after[0] + LEAK_KIB)
		return bed_says("%ld MiB after one flood, %ld after two",
				after[0] >> 10, after[1] >> 10);
	return NULL;
}

static const char *row_run(size_t row)
{
	const struct bed_opts o = {
		.len = 1u << 20,
		.memory = BED_EMULATED,
		.timeout = TIMEOUT,
		.receives = true,
	};
	static struct bed_daemon d;
	const char *wrong;
	struct card c;
	struct bed b;

	if (!rows[row].daemon) {
		bed_open(&b, &o);
		return flood_rounds(&b, row, b.target, 0);
	}
	wrong = bed_daemon_start(&d, seed);
	if (!wrong) {
		c = bed_daemon_card(&d);
		bed_daemon_visit(&b, &c, NULL);
		wrong = flood_rounds(&b, row, d.pid, d.where.port);
	}
	bed_daemon_stop(&d);
	return wrong;
}

int main(int argc, char **argv)
{
	bed_args(argc, argv, &seed, NULL);
	bed_run(ROWS, 2, row_name, row_run);
	return tap_done();
}
