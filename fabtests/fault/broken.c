// SPDX-License-Identifier: BSD-2-Clause
/*
 * Broken connections, restarts, lost replies, failing disks: no commit reports
 * success for bytes that are not durable.
 */
#include "config.h"

#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/wire.h"
#include "fault/duo.h"

static char sentence[200];
#define FAIL(...)                                                              \
	do {                                                                   \
		snprintf(sentence, sizeof(sentence), __VA_ARGS__);             \
		return sentence;                                               \
	} while (0)

static const struct pair_opts plain;

/*
 * Shut down the private connections of this process, which are the sockets
 * whose peer port is the port in the key. Returns their number.
 */
static int cut_connections(const struct card *c)
{
	const uint16_t port = htons(rp_key_port(c->pool_key));
	struct sockaddr_in peer;
	socklen_t len;
	struct dirent *de;
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && (de = readdir(dir))) {
		int fd = atoi(de->d_name);

		len = sizeof(peer);
		if (getpeername(fd, (struct sockaddr *)&peer, &len) ||
		    peer.sin_family != AF_INET || peer.sin_port != port)
			continue;
		n += !shutdown(fd, SHUT_RDWR);
	}
	closedir(dir);
	return n;
}

static const char *cut_between(struct duo *d)
{
	static char bytes[8][4096];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	int st = -1;
	struct fi_rma_iov r;
	struct card c;
	struct side s;

	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	if (duo_commit(&s, &c, 0, 64))
		return "the first commit failed";
	/*
	 * A stopped target cannot reply, but its kernel may still receive the
	 * bytes of the writes.
	 */
	duo_stop(d);
	for (int i = 0; i < 8; i++)
		POST(&s,
		     fi_write(s.ep, bytes[i], sizeof(bytes[i]), NULL, s.peer,
			      c.pool_addr + i * 4096, c.pool_key, bytes[i]));
	if (!cut_connections(&c))
		return "found no connection to cut";
	r = (struct fi_rma_iov){c.pool_addr, 8 * 4096, c.pool_key};
	POST(&s, commit_post(s.ep, &r, 1, s.peer, FI_RPMEM_DURABLE,
			     FI_RPMEM_CLASS_DEFAULT, NULL, &st));
	kill(d->target, SIGCONT);
	for (int i = 0; i < 9; i++) {
		if (side_wait(&s, &e, &err)) {
			if (e.op_context == &st)
				return "the commit of lost writes succeeded";
		} else if (err.op_context == &st) {
			st = err.prov_errno;
		}
	}
	/*
	 * LOST: the connection ended under the commit. WRITE_FAILED: the
	 * initiator noticed the loss of the writes before it processed the
	 * commit.
	 */
	if (st != RP_ST_LOST && st != RP_ST_WRITE_FAILED)
		FAIL("status %d", st);
	/*
	 * The range of the eight writes stays poisoned until it is written
	 * again, even where a write completed without error: no commit has
	 * covered them.
	 */
	st = duo_commit(&s, &c, 100, 8);
	if (st != RP_ST_WRITE_FAILED)
		FAIL("a later commit of the range ended with %d", st);
	st = duo_commit(&s, &c, 9 * 4096, 4096);
	if (st)
		FAIL("a commit beside the range ended with %d", st);
	if (duo_write(&s, &c, 0, 8 * 4096))
		return "writing again failed";
	st = duo_commit(&s, &c, 0, 8 * 4096);
	if (st)
		FAIL("after writing again the commit ended with %d", st);
	side_close(&s);
	return NULL;
}

/*
 * Let all targets listen on one port that is free now, and that the kernel does
 * not give to outgoing connections.
 */
static void one_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	unsigned int port = 10000 + (unsigned int)getpid() % 20000;
	char ports[16];

	do
		at.sin_port = htons((uint16_t)++port);
	while (bind(fd, (struct sockaddr *)&at, sizeof(at)));
	close(fd);
	snprintf(ports, sizeof(ports), "%u-%u", port, port);
	setenv("FI_OFI_RPMEM_PORTS", ports, 1);
}

/*
 * A target restarted on the same port refuses a key of its previous
 * incarnation. After a restart on another port nothing listens for such a key.
 */
static const char *restart_target(struct duo *d, bool between, bool same_port)
{
	struct card c, again;
	struct side s;
	int st;

	if (same_port)
		one_port();
	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	if (between && (duo_write(&s, &c, 0, 4096) || duo_commit(&s, &c, 0, 1)))
		return "the first write or commit failed";
	if (between && duo_write(&s, &c, 4096, 4096))
		return "a write failed";
	duo_kill(d);
	duo_start(d, &plain, &again);
	if (memcmp(c.name, again.name, c.len))
		return "the new target has another address";
	if (c.pool_key == again.pool_key)
		return "the keys are the same";
	if (same_port !=
	    (rp_key_port(c.pool_key) == rp_key_port(again.pool_key)))
		FAIL("the ports are %u and %u", rp_key_port(c.pool_key),
		     rp_key_port(again.pool_key));
	st = duo_commit(&s, &c, 4096, 4096);
	/* A commit posted before the loss was noticed fails with LOST. */
	if (between && same_port && st == RP_ST_LOST)
		st = duo_commit(&s, &c, 4096, 4096);
	if (st != (same_port ? RP_ST_STALE_KEY : RP_ST_LOST))
		FAIL("the commit ended with %d", st);
	/* The new key works on the endpoint that had the old key. */
	if (duo_write(&s, &again, 4096, 4096))
		return "a write by the new key failed";
	st = duo_commit(&s, &again, 4096, 4096);
	if (st)
		FAIL("a commit by the new key ended with %d", st);
	/* The old key is still refused. */
	if (!duo_commit(&s, &c, 0, 4096))
		return "a second commit by the old key succeeded";
	side_close(&s);
	return NULL;
}

static const char *restart_between(struct duo *d)
{
	return restart_target(d, true, false);
}

static const char *restart_before_commit(struct duo *d)
{
	return restart_target(d, false, false);
}

static const char *restart_between_same_port(struct duo *d)
{
	return restart_target(d, true, true);
}

static const char *restart_before_commit_same_port(struct duo *d)
{
	return restart_target(d, false, true);
}

static const char *lost_replies(struct duo *d)
{
	struct card c;
	struct side s;
	int st;

	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	st = duo_commit(&s, &c, 0, 64);
	if (st != RP_ST_TIMEOUT)
		FAIL("the commit ended with %d", st);
	return NULL;
}

static const char *slow_disk(struct duo *d)
{
	double start;
	struct card c;
	struct side s;
	int st;

	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	start = duo_now();
	st = duo_commit(&s, &c, 0, 64);
	if (st)
		FAIL("the commit ended with %d after %.1f s", st,
		     duo_now() - start);
	if (duo_now() - start < 5.9)
		FAIL("the disk was not slow: %.1f s", duo_now() - start);
	return NULL;
}

static const char *failing_disk(struct duo *d)
{
	struct card c;
	struct side s;
	int st;

	duo_start(d, &plain, &c);
	duo_open(&s, &plain, &c);
	st = duo_commit(&s, &c, 0, 64);
	if (st != RP_ST_FLUSH_FAILED)
		FAIL("the commit ended with %d", st);
	/*
	 * The kernel reports a write-back error to one msync() only. The target
	 * must remember the error for the whole region.
	 */
	st = duo_commit(&s, &c, 65536, 64);
	if (st != RP_ST_REGION_FAILED)
		FAIL("the next commit ended with %d", st);
	return NULL;
}

int main(void)
{
	setbuf(stdout, NULL);
	duo_env("FI_OFI_RPMEM_TIMEOUT", "3000");
	duo_faults(NULL);
	duo_case("connection cut between write and commit", cut_between);
	duo_case("target restarted between write and commit", restart_between);
	duo_case("target restarted before the first commit",
		 restart_before_commit);
	duo_case("restarted at the same port between write and commit",
		 restart_between_same_port);
	duo_case("restarted at the same port before the first commit",
		 restart_before_commit_same_port);
	duo_env("FI_OFI_RPMEM_TIMEOUT", "1000");
	duo_faults("drop-replies");
	duo_case("replies are lost", lost_replies);
	/* 2000 ms, not 1000: heartbeats may be late on a busy machine. */
	duo_env("FI_OFI_RPMEM_TIMEOUT", "2000");
	duo_faults("slow-flush");
	duo_env("RPMEM_FAULT_MS", "6000");
	duo_case("a slow disk is not a dead target", slow_disk);
	duo_faults("fail-flush");
	duo_env("FI_OFI_RPMEM_TIMEOUT", "30000"); /* no operation may end by
						   * the timeout here */
	duo_case("a failed flush is reported, and persists", failing_disk);
	return tap_done();
}
