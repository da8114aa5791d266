// SPDX-License-Identifier: BSD-2-Clause
/* A copy whose target dies while nothing is outstanding ends, and in time. */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/copy.h"

#define SIZE (1u << 20)

static char dir[] = "copy_dead.XXXXXX";
static char pool[64], port[64], file[64];

static void fail_test(const char *what)
{
	printf("Bail out! %s\n", what);
	exit(99);
}

/*
 * Start fi_rpmemd and wait until it is ready: its pid, and the port in *number.
 */
static pid_t start_daemon(uint16_t *number)
{
	const struct timespec pause = {.tv_nsec = 20000000};
	pid_t pid = fork();
	unsigned int n = 0;
	FILE *f;

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("util/fi_rpmemd", "fi_rpmemd", "--port", "0",
		      "--port-file", port, "--create", "1M", pool, NULL);
		_exit(127);
	}
	for (int i = 0; pid > 0 && i < 1000; i++) {
		f = fopen(port, "r");
		if (f) {
			if (fscanf(f, "%u", &n) != 1)
				n = 0;
			fclose(f);
		}
		if (n)
			break;
		nanosleep(&pause, NULL);
	}
	if (!n)
		fail_test("no daemon");
	*number = (uint16_t)n;
	return pid;
}

static void run_copy(bool up)
{
	struct copy_cfg cfg = {
		.file = file,
		.remote = "127.0.0.1:pool",
		.pool = "pool",
		.up = up,
		.quiet = true,
		.class = FI_RPMEM_CLASS_NONE,
		.chunk = 65536,
		.window = 4,
		.timeout = 2,
	};
	struct copy c = {.cfg = &cfg, .ack_fd = -1, .size = SIZE};
	uint64_t start, ms;
	pid_t daemon;
	int ret;

	strcpy(cfg.target.host, "127.0.0.1");
	daemon = start_daemon(&cfg.target.port);
	c.fd = open(file, O_RDONLY);
	if (copy_open(&c))
		fail_test(c.err);
	kill(daemon, SIGKILL);
	waitpid(daemon, NULL, 0);
	unlink(port);
	/* Let the base notice the loss: from here on its connects fail. */
	for (int i = 0; i < 10; i++)
		copy_poll(&c, 20);

	start = rp_now_ms();
	alarm(60); /* kills a test that hangs */
	ret = up ? copy_up(&c) : copy_down(&c);
	alarm(0);
	ms = rp_now_ms() - start;
	/* A generous bound: a faulty copy would never end. */
	printf("%sok %d - %s: %d after %u ms: %s\n",
	       ret == RP_EXIT_BROKEN && ms < 30000 ? "" : "not ", up ? 1 : 2,
	       up ? "to a pool" : "from a pool", ret, (unsigned int)ms, c.err);
	copy_close(&c);
	close(c.fd);
	if (ret != RP_EXIT_BROKEN || ms >= 30000)
		exit(1);
}

static void remove_files(void)
{
	unlink(pool);
	unlink(port);
	unlink(file);
	rmdir(dir);
}

int main(void)
{
	int fd;

	setbuf(stdout, NULL);
	unsetenv("FI_PROVIDER");
	if (!mkdtemp(dir))
		fail_test("no folder");
	atexit(remove_files);
	snprintf(pool, sizeof(pool), "%s/pool", dir);
	snprintf(port, sizeof(port), "%s/port", dir);
	snprintf(file, sizeof(file), "%s/file", dir);
	fd = open(file, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, SIZE))
		fail_test("no file");
	close(fd);
	run_copy(true);
	run_copy(false);
	printf("1..2\n");
	return 0;
}
