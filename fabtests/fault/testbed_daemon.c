// SPDX-License-Identifier: BSD-2-Clause
/* Starts fi_rpmemd with a secret, and fetches the export of its pool. */
#include "config.h"

#include <fcntl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/testbed_daemon.h"

static void make_secret(const char *path, uint64_t seed, struct rp_secret *s)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	char err[RP_ERR_LEN];

	if (fd < 0)
		MUST(-errno);
	for (unsigned int i = 0; i < 4; i++)
		dprintf(fd, "%016llx", (unsigned long long)bed_mix(seed, i));
	close(fd);
	MUST(rp_secret_load(path, s, err));
}

static void forget_files(const struct bed_daemon *d)
{
	unlink(d->secret_file);
	unlink(d->other_file);
	unlink(d->log_file);
	unlink(d->pool_file);
}

static void daemon_exec(const struct bed_daemon *d, const char *port_file)
{
	int fd = open(d->log_file, O_WRONLY | O_CREAT | O_APPEND, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	setenv("FI_LOG_LEVEL", "warn", 1);
	execl("util/fi_rpmemd", "fi_rpmemd", "--port", "0", "--port-file",
	      port_file, "--create", "1M", "--secret", d->secret_file,
	      d->pool_file, NULL);
	_exit(127);
}

const char *bed_daemon_start(struct bed_daemon *d, uint64_t seed)
{
	char port_file[64], err[RP_ERR_LEN];
	unsigned int port = 0;
	FILE *f;

	bed_file(d->secret_file, sizeof(d->secret_file), "secret");
	bed_file(d->other_file, sizeof(d->other_file), "other");
	bed_file(d->log_file, sizeof(d->log_file), "log");
	bed_file(d->pool_file, sizeof(d->pool_file), "pool");
	bed_file(port_file, sizeof(port_file), "port");
	forget_files(d);
	make_secret(d->secret_file, seed + 1, &d->secret);
	make_secret(d->other_file, seed + 2, &d->other);
	d->pid = fork();
	if (!d->pid)
		daemon_exec(d, port_file);
	for (int i = 0; d->pid > 0 && i < 1500 && !port; i++) {
		f = fopen(port_file, "r");
		if (f && fscanf(f, "%u", &port) != 1)
			port = 0;
		if (f)
			fclose(f);
		bed_sleep(0.02);
	}
	unlink(port_file);
	if (!port)
		return "no daemon";
	d->where = (struct rp_setup_target){
		.port = (uint16_t)port,
		.secret = &d->secret,
	};
	strcpy(d->where.host, "127.0.0.1");
	if (rp_setup_fetch_export(&d->where, d->pool_file, &d->export, err))
		return bed_says("no export: %s", err);
	return NULL;
}

void bed_daemon_stop(struct bed_daemon *d)
{
	if (d->pid > 0) {
		kill(d->pid, SIGKILL);
		waitpid(d->pid, NULL, 0);
	}
	forget_files(d);
}

int bed_daemon_logged(const struct bed_daemon *d, const char *word)
{
	FILE *f = fopen(d->log_file, "r");
	char line[1024];
	int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strcasestr(line, word) != NULL;
	if (f)
		fclose(f);
	return n;
}

struct card bed_daemon_card(const struct bed_daemon *d)
{
	struct card c = {
		.len = d->export.fi_name_len,
		.pool_key = d->export.key,
		.pool_addr = d->export.addr,
	};

	memcpy(c.name, d->export.fi_name, sizeof(c.name));
	return c;
}

void bed_daemon_visit(struct bed *b, const struct card *c, const char *prov)
{
	struct pair_opts o = {.caps = FI_ATOMIC, .prov = prov};

	memset(b, 0, sizeof(*b));
	b->card = *c;
	side_open(&b->s, &o);
	side_insert(&b->s, &b->card);
}
