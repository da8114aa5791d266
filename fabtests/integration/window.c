// SPDX-License-Identifier: BSD-2-Clause
/*
 * An MPI program without any persistence code: rank 0 puts records into rank
 * 1's window on a file, and notes each one after MPI_Win_flush(). Meanwhile
 * rank 1 is killed.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "mpi_test.h"

#define SLOT  4096
#define SLOTS 4096

static uint8_t record[SLOT];

/* Lengths below and above the limit of writes inside requests. */
static size_t length_of(unsigned int i)
{
	static const size_t len[] = {8, 64, 100, 1000, 4096, 3000, 17};

	return len[i % (sizeof(len) / sizeof(len[0]))];
}

static const char *killed; /* the file that records the kill */

static void die(int sig)
{
	(void)sig;
	close(creat(killed, 0600));
	kill(getpid(), SIGKILL);
}

/* Rank 1 serves its window, in MPI or while computing, until it is killed. */
static void serve_until_killed(long ms, int computes)
{
	struct itimerval when = {
		.it_value = {ms / 1000, ms % 1000 * 1000},
	};
	int never;

	killed = getenv("RPMEM_KILLED");
	signal(SIGALRM, die);
	setitimer(ITIMER_REAL, &when, NULL);
	while (computes)
		pause();
	MPI_Recv(&never, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Put a record as bytes, or as network atomics or their replacement. */
static void put_record(MPI_Win win, unsigned int i)
{
	MPI_Aint at = (MPI_Aint)i * SLOT;
	int len = (int)length_of(i), longs = len / 8;

	if (len == 8 || len == 1000)
		MPI_Accumulate(record, longs, MPI_LONG, 1, at, longs, MPI_LONG,
			       MPI_REPLACE, win);
	else
		MPI_Put(record, len, MPI_BYTE, 1, at, len, MPI_BYTE, win);
}

static void put_records(MPI_Win win, const char *notes)
{
	int fd = open(notes, O_WRONLY | O_CREAT | O_APPEND, 0600), never;

	if (fd < 0)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Win_lock_all(0, win);
	for (unsigned int i = 0; i < SLOTS; i++) {
		fill(record, length_of(i), 1, i);
		put_record(win, i);
		MPI_Win_flush(1, win);
		if (write(fd, &i, sizeof(i)) != sizeof(i))
			MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Recv(&never, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/*
 * Does the file hold every noted record? Prints the numbers of noted and lost
 * records.
 */
static int verify_file(const char *file, const char *notes)
{
	int fd = open(file, O_RDONLY), nfd = open(notes, O_RDONLY);
	unsigned int i, noted = 0, lost = 0;

	while (nfd >= 0 && read(nfd, &i, sizeof(i)) == sizeof(i)) {
		ssize_t n = fd < 0 ? -1
				   : pread(fd, record, length_of(i),
					   (off_t)i * SLOT);

		noted++;
		lost += n != (ssize_t)length_of(i) ||
			differ(record, length_of(i), 1, i);
	}
	printf("%u noted, %u lost\n", noted, lost);
	return lost != 0;
}

int main(int argc, char **argv)
{
	void *pool = NULL;
	MPI_Win win;

	if (argc == 4 && !strcmp(argv[1], "verify"))
		return verify_file(argv[2], argv[3]);
	if (argc != 5) {
		fprintf(stderr,
			"usage: %s POOL NOTES MS COMPUTES\n"
			"       %s verify FILE NOTES\n",
			argv[0], argv[0]);
		return 2;
	}
	begin(&argc, &argv);
	if (rank == 1) {
		int fd = open(argv[1], O_RDWR);

		pool = fd < 0 ? MAP_FAILED
			      : mmap(NULL, SLOTS * SLOT, PROT_READ | PROT_WRITE,
				     MAP_SHARED, fd, 0);
		if (pool == MAP_FAILED)
			MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Win_create(pool, pool ? SLOTS * SLOT : 0, 1, MPI_INFO_NULL,
		       MPI_COMM_WORLD, &win);
	if (rank == 1)
		serve_until_killed(atol(argv[3]), atoi(argv[4]));
	else
		put_records(win, argv[2]);
	return 1;
}
