// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times writes to two replicated key-value stores of raft_kv, in turns:
 *
 *   raft PORT PORT [ROUNDS]
 *
 * Each PORT is that of a store's first server, at 127.0.0.1; the others follow.
 * One client, one write of a key of 16 B and a value of 64 B outstanding, at
 * the leader. Prints the medians over all rounds of the rounds' medians in
 * microseconds, and the median of the ratios within a round.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EACH 100u /* writes of one round */
#define MOST 1000u

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int dial(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((unsigned short)port),
				.sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		perror("raft: connect");
		exit(1);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* One write. Returns 0 if this server is not the leader. */
static int put(int fd, unsigned int n)
{
	char line[128], reply[128];
	ssize_t len =
		snprintf(line, sizeof(line), "put %016u %064u\n", n % 1000, n);

	if (write(fd, line, (size_t)len) != len) {
		perror("raft: write");
		exit(1);
	}
	for (ssize_t got = 0, n = 0;; got += n) {
		if (got && reply[got - 1] == '\n')
			break;
		n = read(fd, reply + got, sizeof(reply) - (size_t)got);
		if (n <= 0) {
			fprintf(stderr, "raft: a server has ended\n");
			exit(1);
		}
	}
	return strncmp(reply, "ok ", 3) == 0;
}

static int find_leader(int port)
{
	int fd;

	for (unsigned int i = 0; i < 300; i++) {
		fd = dial(port + (int)(i % 3));
		if (put(fd, 0))
			return fd;
		close(fd);
		usleep(50000);
	}
	fprintf(stderr, "raft: no leader at %d\n", port);
	exit(1);
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *us, unsigned int n)
{
	qsort(us, n, sizeof(*us), compare);
	return us[n / 2];
}

static double round_us(int fd, unsigned int round)
{
	double us[EACH], start;

	for (unsigned int i = 0; i < EACH; i++) {
		start = now_us();
		if (!put(fd, round * EACH + i)) {
			fprintf(stderr, "raft: the leader has changed\n");
			exit(1);
		}
		us[i] = now_us() - start;
	}
	return median(us, EACH);
}

int main(int argc, char **argv)
{
	const unsigned int rounds =
		argc > 3 ? (unsigned int)strtoul(argv[3], NULL, 10) : 41;
	static double us[2][MOST], ratio[MOST];
	int fds[2];

	if (argc < 3 || !rounds || rounds > MOST) {
		fprintf(stderr, "usage: raft PORT PORT [ROUNDS]\n");
		return 2;
	}
	for (unsigned int s = 0; s < 2; s++) {
		fds[s] = find_leader(atoi(argv[1 + s]));
		round_us(fds[s], 0);
	}
	for (unsigned int r = 0; r < rounds; r++) {
		/* Each store is the first one of every other round. */
		for (unsigned int s = 0; s < 2; s++)
			us[(r + s) % 2][r] = round_us(fds[(r + s) % 2], r);
		ratio[r] = us[0][r] / us[1][r];
	}
	qsort(ratio, rounds, sizeof(*ratio), compare);
	printf("first %.0f us, second %.0f us, ratio %.2f, quartiles %.2f "
	       "%.2f\n",
	       median(us[0], rounds), median(us[1], rounds), ratio[rounds / 2],
	       ratio[rounds / 4], ratio[rounds * 3 / 4]);
	return 0;
}
