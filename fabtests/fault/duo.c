// SPDX-License-Identifier: BSD-2-Clause
/* A target that may be stopped, killed and restarted, and one initiator. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/duo.h"

double duo_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double duo_waited(void)
{
	unsigned long long ns, sum = 0;
	DIR *dir = opendir("/proc/self/task");
	struct dirent *de;
	char path[300];
	FILE *f;

	while (dir && (de = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat",
			 de->d_name);
		f = *de->d_name == '.' ? NULL : fopen(path, "r");
		if (f && fscanf(f, "%*u %llu", &ns) == 1)
			sum += ns;
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return (double)sum * 1e-9;
}

void duo_env(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

void duo_faults(const char *points)
{
	static char normal[4096], faulty[4096];

	if (!*normal) {
		snprintf(normal, sizeof(normal), "%s",
			 getenv("FI_PROVIDER_PATH"));
		snprintf(faulty, sizeof(faulty), "%s",
			 getenv("RPMEM_FAULT_PROVIDER"));
	}
	duo_env("FI_PROVIDER_PATH", points ? faulty : normal);
	duo_env("RPMEM_FAULT", points);
}

static void run_target(const struct duo *d, const struct pair_opts *opts,
		       int fd)
{
	struct pair_opts o = *opts;
	struct fi_cq_tagged_entry e;
	struct card c;
	struct side s;

	if (*d->port)
		o.port = d->port;
	side_open(&s, &o);
	side_pool(&s, d->pool);
	side_card(&s, &c);
	if (write(fd, &c, sizeof(c)) != sizeof(c))
		_exit(1);
	for (;;) {
		if (o.sleeps)
			fi_cq_sread(s.cq, &e, 1, NULL, -1);
		else if (o.progress == FI_PROGRESS_AUTO)
			pause();
		else
			fi_cq_read(s.cq, &e, 1);
	}
}

/*
 * The command to a spare target process: what to serve, and with which options.
 */
struct order {
	struct duo d;
	struct pair_opts o;
};

static void spare_peer_start(struct duo *d)
{
	struct order order;
	int go[2], card[2];
	pid_t pid;

	if (pipe(go) || pipe(card))
		MUST(-errno);
	pid = fork();
	if (pid < 0)
		MUST(-errno);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		close(card[0]);
		if (read(go[0], &order, sizeof(order)) != sizeof(order))
			_exit(0);
		run_target(&order.d, &order.o, card[1]);
	}
	close(go[0]);
	close(card[1]);
	d->spare[d->nspare].pid = pid;
	d->spare[d->nspare].go = go[1];
	d->spare[d->nspare++].card = card[0];
}

void duo_start(struct duo *d, const struct pair_opts *o, struct card *c)
{
	struct order order = {*d, *o};
	int go, card;

	/*
	 * DUO_SPARES processes are forked before the initiator opens an RDMA
	 * device. Over other bases one at a time is enough, with the
	 * environment of this moment.
	 */
	if (!d->nspare)
		for (int i = 0; i < (pair_over("verbs") ? DUO_SPARES : 1); i++)
			spare_peer_start(d);
	d->nspare--;
	d->target = d->spare[d->nspare].pid;
	go = d->spare[d->nspare].go;
	card = d->spare[d->nspare].card;
	if (write(go, &order, sizeof(order)) != sizeof(order) ||
	    read(card, c, sizeof(*c)) != sizeof(*c))
		MUST(-EPIPE);
	close(go);
	close(card);
	snprintf(d->port, sizeof(d->port), "%u",
		 ntohs(((struct sockaddr_in *)c->name)->sin_port));
}

void duo_kill(struct duo *d)
{
	if (!d->target)
		return;
	kill(d->target, SIGKILL);
	waitpid(d->target, NULL, 0);
	d->target = 0;
}

void duo_stop(struct duo *d)
{
	int status;

	kill(d->target, SIGSTOP);
	if (waitpid(d->target, &status, WUNTRACED) != d->target ||
	    !WIFSTOPPED(status))
		MUST(-ECHILD);
}

void duo_open(struct side *s, const struct pair_opts *o, const struct card *c)
{
	side_open(s, o);
	side_insert(s, c);
}

int duo_commit(struct side *s, const struct card *c, uint64_t addr,
	       uint64_t len)
{
	struct fi_rma_iov r = {c->pool_addr + addr, len, c->pool_key};
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	POST(s, commit_post(s->ep, &r, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, &r));
	return side_wait(s, &e, &err) ? 0 : err.prov_errno;
}

int duo_write(struct side *s, const struct card *c, uint64_t addr, size_t len)
{
	static char bytes[65536];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	POST(s, fi_write(s->ep, bytes, len, NULL, s->peer, c->pool_addr + addr,
			 c->pool_key, bytes));
	return side_wait(s, &e, &err) ? 0 : err.err;
}

void duo_case(const char *name, duo_fn fn)
{
	const char *given = getenv("RPMEM_POOL");
	const char *deadline = getenv("RPMEM_DEADLINE");
	struct duo d = {0};
	char says[256] = "it died or hung";
	const char *text;
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	if (given)
		snprintf(d.pool, sizeof(d.pool), "%s", given);
	else
		snprintf(d.pool, sizeof(d.pool), "duo_pool.%d", getpid());
	fflush(stdout);
	if (pipe(fds))
		MUST(-errno);
	pid = fork();
	if (pid < 0)
		MUST(-errno);
	if (!pid) {
		alarm(deadline ? (unsigned int)atoi(deadline) : 60);
		text = fn(&d);
		duo_kill(&d);
		if (!text)
			text = "";
		/*
		 * Write the final NUL, too: the parent then reads a byte on
		 * success, and none after a crash.
		 */
		if (write(fds[1], text, strlen(text) + 1) < 0)
			_exit(1);
		_exit(0);
	}
	close(fds[1]);
	n = read(fds[0], says, sizeof(says) - 1);
	close(fds[0]);
	if (n > 0)
		says[n] = 0;
	waitpid(pid, &status, 0);
	if (!given)
		unlink(d.pool);
	tap_ok(n > 0 && !*says && !status, "%s%s%s", name, *says ? ": " : "",
	       says);
}

static FILE *said;

void duo_listening_case(const char *name, duo_fn fn)
{
	const int err = dup(STDERR_FILENO);
	char line[1024];

	said = tmpfile();
	if (err < 0 || !said || dup2(fileno(said), STDERR_FILENO) < 0)
		MUST(-FI_EIO);
	duo_env("FI_LOG_LEVEL", "warn");
	duo_case(name, fn);
	duo_env("FI_LOG_LEVEL", NULL);
	dup2(err, STDERR_FILENO);
	close(err);
	rewind(said);
	while (fgets(line, sizeof(line), said))
		printf("# %s", line);
	fclose(said);
}

bool duo_has_said(const char *words)
{
	static char text[65536];
	static off_t from;
	ssize_t n;

	n = pread(fileno(said), text, sizeof(text) - 1, from);
	text[n > 0 ? n : 0] = 0;
	from += n > 0 ? n : 0;
	return strstr(text, words);
}
