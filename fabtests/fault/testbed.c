// SPDX-License-Identifier: BSD-2-Clause
/*
 * A target that a test can stop and continue, and an initiator whose waits have
 * limits.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/testbed.h"
#include "unit/landing.h"

/* Seconds after which a row that has not ended is killed. */
#define ROW_LIMIT 150
/*
 * With bed.wakes: seconds of -FI_EAGAIN after which bed_retry() continues a
 * stopped target.
 */
#define WAKE_AFTER 0.05

const char *const bed_memory_names[BED_MEMORIES] = {"file", "tmpfs",
						    "emulated"};

double bed_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void bed_sleep(double seconds)
{
	struct timespec t = {(time_t)seconds, 0};

	t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
	nanosleep(&t, NULL);
}

const char *bed_says(const char *fmt, ...)
{
	/* Several buffers, because one sentence may quote another. */
	static char texts[4][240];
	static unsigned int turn;
	char *text = texts[turn++ % 4];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(texts[0]), fmt, ap);
	va_end(ap);
	return text;
}

/* --- seeds and arguments of test programs --- */

static uint64_t random_state;

void bed_seed(uint64_t seed)
{
	random_state = seed;
}

uint64_t bed_mix(uint64_t a, uint64_t b)
{
	uint64_t z = a * 0x9e3779b97f4a7c15u ^ (b + 0x632be59bd9b4e019u);

	z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
	z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
	return z ^ z >> 32;
}

uint64_t bed_random(void)
{
	return bed_mix(++random_state, 1);
}

bool bed_long(void)
{
	const char *given = getenv("RP_LONG");

	return given && !strcmp(given, "1");
}

void bed_args(int argc, char **argv, uint64_t *seed, const char **only)
{
	static const struct option options[] = {
		{"seed", required_argument, NULL, 's'},
		{"only", required_argument, NULL, 'o'},
		{0},
	};
	int c;

	*seed = (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's')
			*seed = strtoull(optarg, NULL, 0);
		else if (c == 'o' && only)
			*only = optarg;
		else
			exit(99);
	}
	setbuf(stdout, NULL);
	printf("# --seed %llu\n", (unsigned long long)*seed);
}

/* --- test rows --- */

struct running {
	pid_t pid;
	int fd;
	size_t row;
};

static pid_t driver;

static void bed_path(char *path, size_t size, enum bed_memory memory,
		     size_t row)
{
	snprintf(path, size, "%sbed_pool.%d.%zu",
		 memory == BED_FILE ? "" : "/dev/shm/", (int)driver, row);
}

static size_t current_row;

static void row_start(struct running *r, size_t row, bed_row_fn fn)
{
	const char *text;
	int fds[2];

	fflush(stdout);
	if (pipe(fds))
		MUST(-errno);
	r->row = row;
	r->fd = fds[0];
	r->pid = fork();
	if (r->pid < 0)
		MUST(-errno);
	if (!r->pid) {
		close(fds[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(ROW_LIMIT);
		signal(SIGPIPE, SIG_IGN);
		current_row = row;
		text = fn(row);
		if (!text)
			text = "";
		/* The final NUL shows that the row has ended by itself. */
		if (write(fds[1], text, strlen(text) + 1) < 0)
			_exit(1);
		_exit(0);
	}
	close(fds[1]);
}

static void row_end(const struct running *r, int status, bed_name_fn name)
{
	char says[256] = "", text[200], path[64];
	ssize_t n = read(r->fd, says, sizeof(says) - 1);

	close(r->fd);
	if (n <= 0)
		snprintf(says, sizeof(says), "it %s, status %#x",
			 WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
				 ? "did not end"
				 : "died",
			 status);
	name(r->row, text, sizeof(text));
	tap_ok(!*says, "%s%s%s", text, *says ? ": " : "", says);
	for (int m = 0; m < BED_MEMORIES; m++) {
		bed_path(path, sizeof(path), m, r->row);
		unlink(path);
	}
}

void bed_run(size_t n, unsigned int at_once, bed_name_fn name, bed_row_fn row)
{
	struct running *r = calloc(at_once, sizeof(*r));
	size_t next = 0, ended = 0;
	int status;
	pid_t pid;

	if (!r)
		MUST(-ENOMEM);
	tap_begin();
	driver = getpid();
	while (ended < n) {
		for (unsigned int i = 0; i < at_once && next < n; i++)
			if (!r[i].pid)
				row_start(&r[i], next++, row);
		pid = waitpid(-1, &status, 0);
		for (unsigned int i = 0; i < at_once; i++) {
			if (r[i].pid != pid)
				continue;
			row_end(&r[i], status, name);
			r[i].pid = 0;
			ended++;
		}
	}
	free(r);
}

void bed_file(char *path, size_t size, const char *suffix)
{
	snprintf(path, size, "bed_%s.%d.%zu", suffix, (int)driver, current_row);
}

static bool process_listens(unsigned long inode, pid_t pid)
{
	char link[64], path[64], want[64];
	struct dirent *de;
	bool found = false;
	ssize_t n;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	snprintf(want, sizeof(want), "socket:[%lu]", inode);
	dir = opendir(path);
	while (dir && !found && (de = readdir(dir))) {
		n = readlinkat(dirfd(dir), de->d_name, link, sizeof(link) - 1);
		link[n > 0 ? n : 0] = 0;
		found = !strcmp(link, want);
	}
	if (dir)
		closedir(dir);
	return found;
}

int bed_ports(pid_t pid, uint16_t *ports, int n)
{
	static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
	unsigned int port, state;
	unsigned long inode;
	char line[512];
	int found = 0;
	FILE *f;

	for (int i = 0; i < 2; i++) {
		f = fopen(tables[i], "r");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line,
				   "%*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x "
				   "%*x:%*x %*x:%*x %*x %*u %*d %lu",
				   &port, &state, &inode) == 3 &&
			    state == 10 && found < n &&
			    process_listens(inode, pid))
				ports[found++] = (uint16_t)port;
		if (f)
			fclose(f);
	}
	return found;
}

/* --- the target --- */

struct command {
	unsigned int progress_ms;
};

/* Receives that accept any message, tagged or not. */
#define RECEIVES 1024
static struct receive {
	bool tagged;
	uint64_t bytes[32];
} receives[RECEIVES];

static void receive_anything(struct side *s, struct receive *r)
{
	r->bytes[0] = 0;
	if (r->tagged)
		POST(s, fi_trecv(s->ep, r->bytes, sizeof(r->bytes), NULL,
				 FI_ADDR_UNSPEC, 0, UINT64_MAX, r));
	else
		POST(s, fi_recv(s->ep, r->bytes, sizeof(r->bytes), NULL,
				FI_ADDR_UNSPEC, r));
}

/* Make progress at the target; pause if there was none. */
static void target_progress(struct bed *b, struct side *s)
{
	struct receive *r;
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	bool idle = true;
	ssize_t n;

	while ((n = fi_cq_read(s->cq, &e, 1)) != -FI_EAGAIN) {
		err = (struct fi_cq_err_entry){0};
		if (n == 1)
			err.op_context = e.op_context;
		else if (n == -FI_EAVAIL)
			fi_cq_readerr(s->cq, &err, 0);
		else
			MUST(n);
		r = err.op_context;
		if (r && r->bytes[0] == BED_MARK)
			atomic_fetch_add(b->marks, 1);
		if (r)
			receive_anything(s, r);
		idle = false;
	}
	if (idle)
		bed_sleep(500e-6);
}

static void target_run(struct bed *b, const struct bed_opts *o, int in, int out)
{
	struct pair_opts po = {
		.caps = FI_ATOMIC,
		.progress = o->auto_progress ? FI_PROGRESS_AUTO : 0,
	};
	struct pollfd p = {.fd = in, .events = POLLIN};
	struct command c;
	struct card card;
	struct side s;
	double end;
	char ok = 1;

	side_open(&s, &po);
	s.pool = b->mem;
	s.pool_len = b->len;
	MUST(fi_mr_reg(s.domain, b->mem, b->len,
		       FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, FI_RMA_PMEM,
		       &s.pool_mr, NULL));
	for (int i = 0; o->receives && i < RECEIVES; i++) {
		receives[i].tagged = i % 2;
		receive_anything(&s, &receives[i]);
	}
	side_card(&s, &card);
	if (write(out, &card, sizeof(card)) != sizeof(card))
		_exit(1);
	for (;;) {
		target_progress(b, &s);
		if (!poll(&p, 1, 0))
			continue;
		if (read(in, &c, sizeof(c)) != sizeof(c))
			_exit(0);
		for (end = bed_now() + c.progress_ms * 1e-3; bed_now() < end;)
			target_progress(b, &s);
		if (write(out, &ok, 1) != 1)
			_exit(1);
	}
}

static void map_memory(struct bed *b, const struct bed_opts *o)
{
	int fd;

	bed_path(b->path, sizeof(b->path), o->memory, current_row);
	fd = open(b->path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		MUST(-errno);
	MUST(-posix_fallocate(fd, 0, (off_t)o->len));
	b->len = o->len;
	b->mem = mmap(NULL, o->len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (b->mem == MAP_FAILED)
		MUST(-errno);
	close(fd);
	peers_write_here(b->mem, b->len);
	b->marks = mmap(NULL, sizeof(*b->marks), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b->marks == MAP_FAILED)
		MUST(-errno);
}

static void set_environment(const struct bed_opts *o)
{
	static const char *const classes[BED_MEMORIES] = {"power", "process",
							  "none"};
	char ms[16];

	snprintf(ms, sizeof(ms), "%u", o->timeout);
	setenv("FI_OFI_RPMEM_TIMEOUT", ms, 1);
	setenv("FI_OFI_RPMEM_CLASS", classes[o->memory], 1);
	if (o->memory == BED_EMULATED)
		setenv("FI_OFI_RPMEM_EMULATE", "1", 1);
	else
		unsetenv("FI_OFI_RPMEM_EMULATE");
}

void bed_open(struct bed *b, const struct bed_opts *o)
{
	struct pair_opts po = {
		.caps = FI_ATOMIC,
		.progress = o->auto_progress ? FI_PROGRESS_AUTO : 0,
	};
	int to[2], from[2];

	memset(b, 0, sizeof(*b));
	set_environment(o);
	map_memory(b, o);
	if (pipe(to) || pipe(from))
		MUST(-errno);
	b->target = fork();
	if (b->target < 0)
		MUST(-errno);
	if (!b->target) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to[1]);
		close(from[0]);
		target_run(b, o, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	b->to = to[1];
	b->from = from[0];
	if (read(b->from, &b->card, sizeof(b->card)) != sizeof(b->card))
		MUST(-EPIPE);
	side_open(&b->s, &po);
	side_insert(&b->s, &b->card);
}

void bed_stop(struct bed *b)
{
	int status;

	if (b->stopped)
		return;
	kill(b->target, SIGSTOP);
	if (waitpid(b->target, &status, WUNTRACED) != b->target ||
	    !WIFSTOPPED(status))
		MUST(-ECHILD);
	b->stopped = true;
}

void bed_continue(struct bed *b)
{
	if (b->stopped)
		kill(b->target, SIGCONT);
	b->stopped = false;
}

bool bed_drain(struct bed *b, unsigned int ms)
{
	const struct command c = {ms};
	struct pollfd p = {.fd = b->from, .events = POLLIN};
	const double end = bed_now() + BED_DEADLINE;
	char ok;

	if (write(b->to, &c, sizeof(c)) != sizeof(c))
		return false;
	while (!poll(&p, 1, 0) && bed_now() < end)
		if (!bed_poll(b))
			bed_sleep(500e-6);
	return p.revents && read(b->from, &ok, 1) == 1;
}

int bed_cut(struct bed *b)
{
	struct sockaddr_storage peer;
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *de;
	socklen_t len;
	int n = 0;

	(void)b;
	while (dir && (de = readdir(dir))) {
		int fd = atoi(de->d_name);

		len = sizeof(peer);
		if (*de->d_name != '.' &&
		    !getpeername(fd, (struct sockaddr *)&peer, &len) &&
		    peer.ss_family == AF_INET)
			n += !shutdown(fd, SHUT_RDWR);
	}
	if (dir)
		closedir(dir);
	return n;
}

int bed_reinsert(struct bed *b)
{
	int ret = fi_av_remove(b->s.av, &b->s.peer, 1, 0);

	if (ret)
		return ret;
	ret = fi_av_insert(b->s.av, b->card.name, 1, &b->s.peer, 0, NULL);
	return ret == 1 ? 0 : ret < 0 ? ret : -FI_EADDRNOTAVAIL;
}

void bed_reopen(struct bed *b)
{
	MUST(fi_close(&b->s.ep->fid));
	side_endpoint(&b->s, b->s.info);
	MUST(fi_enable(b->s.ep));
}

/* --- the initiator --- */

static void op_end(struct bed *b, struct bed_op *op, int err, int status)
{
	if (!op) {
		b->wrong = "an entry without a context";
		return;
	}
	if (op->ends++ && !b->wrong)
		b->wrong = "an operation has ended twice";
	op->err = err;
	op->status = status;
}

int bed_poll(struct bed *b)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	int ended = 0;
	ssize_t n;

	while ((n = fi_cq_read(b->s.cq, &e, 1)) != -FI_EAGAIN) {
		if (n == 1) {
			op_end(b, e.op_context, 0, 0);
		} else if (n == -FI_EAVAIL) {
			err = (struct fi_cq_err_entry){0};
			if (fi_cq_readerr(b->s.cq, &err, 0) != 1)
				break;
			op_end(b, err.op_context, err.err ? err.err : FI_EOTHER,
			       err.prov_errno);
		} else {
			MUST(n);
		}
		ended++;
	}
	return ended;
}

bool bed_wait(struct bed *b, const struct bed_op *op, double seconds)
{
	const double end = bed_now() + seconds;

	while (!op->ends && bed_now() < end)
		if (!bed_poll(b))
			bed_sleep(200e-6);
	return op->ends;
}

void bed_retry(struct bed *b, double since)
{
	if (b->wakes && b->stopped && bed_now() - since > WAKE_AFTER)
		bed_continue(b);
	if (!bed_poll(b))
		bed_sleep(200e-6);
}

ssize_t bed_write(struct bed *b, const void *buf, uint64_t at, size_t len,
		  uint64_t flags, struct bed_op *op)
{
	struct iovec iov = {(void *)buf, len};
	struct fi_rma_iov rma = {b->card.pool_addr + at, len, b->card.pool_key};
	const struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = b->s.peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = op,
	};

	return fi_writemsg(b->s.ep, &msg, flags | FI_COMPLETION);
}

ssize_t bed_commit(struct bed *b, uint64_t at, size_t len,
		   const struct fi_rpmem_then *then, struct bed_op *op)
{
	const struct fi_rma_iov r = {b->card.pool_addr + at, len,
				     b->card.pool_key};

	return commit_post(b->s.ep, &r, 1, b->s.peer, FI_RPMEM_DURABLE,
			   FI_RPMEM_CLASS_DEFAULT, then, op);
}

ssize_t bed_atomic(struct bed *b, enum fi_op kind, const uint64_t *operand,
		   const uint64_t *compare, uint64_t *result, uint64_t at,
		   uint64_t flags, struct bed_op *op)
{
	const struct fi_ioc iov = {(void *)operand, 1};
	const struct fi_ioc cmp = {(void *)compare, 1};
	struct fi_ioc res = {result, 1};
	const struct fi_rma_ioc rma = {b->card.pool_addr + at, 1,
				       b->card.pool_key};
	const struct fi_msg_atomic m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = b->s.peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.datatype = FI_UINT64,
		.op = kind,
		.context = op,
	};

	flags |= FI_COMPLETION;
	if (compare)
		return fi_compare_atomicmsg(b->s.ep, &m, &cmp, NULL, 1, &res,
					    NULL, 1, flags);
	if (result)
		return fi_fetch_atomicmsg(b->s.ep, &m, &res, NULL, 1, flags);
	return fi_atomicmsg(b->s.ep, &m, flags);
}

void bed_pause(struct bed *b, double seconds)
{
	const double end = bed_now() + seconds;

	do {
		if (!bed_poll(b))
			bed_sleep(200e-6);
	} while (bed_now() < end);
}

const char *bed_commit_again(struct bed *b, const void *buf, uint64_t at,
			     size_t len)
{
	const double end = bed_now() + BED_RECOVERY_SECONDS;
	struct bed_op *write, *commit;
	ssize_t ret = 0;
	int tries = 0;

	do {
		/*
		 * On the heap and never freed, because a completion may come
		 * after this function has returned.
		 */
		write = calloc(2, sizeof(*write));
		if (!write)
			MUST(-FI_ENOMEM);
		commit = &write[1];
		if (tries++)
			bed_pause(b, BED_PAUSE);
		ret = BED_POST(b, bed_write(b, buf, at, len, 0, write));
		if (ret)
			continue;
		if (!bed_wait(b, write, BED_DEADLINE))
			return "a write did not end";
		ret = BED_POST(b, bed_commit(b, at, len, NULL, commit));
		if (ret)
			continue;
		if (!bed_wait(b, commit, BED_DEADLINE))
			return "a commit did not end";
		if (!write->err && !commit->err)
			return memcmp(b->mem + at, buf, len)
				       ? "a commit has succeeded without the "
					 "bytes"
				       : b->wrong;
	} while (bed_now() < end);
	if (ret)
		return bed_says("after %d tries the call returns %zd", tries,
				ret);
	return bed_says("after %d tries the write ends with %d (%d), the "
			"commit with %d (%d)",
			tries, write->err, write->status, commit->err,
			commit->status);
}
