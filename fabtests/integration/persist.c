// SPDX-License-Identifier: BSD-2-Clause
/*
 * An MPI program that commits explicitly with mpi_window.h. Rank 0 puts records
 * into rank 1's window on a file, a few at a time, and notes durable records.
 * Rank 1 also stores some records itself, and is killed.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "docs/examples/mpi_window.h"

#include "mpi_test.h"

#define SLOT  8192
#define SLOTS 2048
#define BATCH 12
#define LOCAL 64 /* slots that rank 1 stores itself */

static uint8_t record[SLOT], batch[BATCH][SLOT];

static const char *killed; /* the file that records the kill */

static void die(int sig)
{
	(void)sig;
	close(creat(killed, 0600));
	kill(getpid(), SIGKILL);
}

static void must_succeed(int ret, const struct mpi_window *w, const char *what)
{
	if (!ret)
		return;
	fprintf(stderr, "rank %d: %s: %s %s\n", rank, what, fi_strerror(-ret),
		w->why);
	MPI_Abort(MPI_COMM_WORLD, 5);
}

static void note_record(int fd, unsigned int i)
{
	if (write(fd, &i, sizeof(i)) != sizeof(i))
		MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Store records locally, without a put. A commit covers such stores, too. */
static void store_local(struct mpi_window *w, uint8_t *pool, int fd, bool bare)
{
	for (unsigned int i = 0; i < LOCAL; i++) {
		fill(pool + i * SLOT, SLOT, 1, i);
		if (!bare)
			must_succeed(mpi_window_persist(w, 1, i * SLOT, SLOT),
				     w, "persist here");
		note_record(fd, i);
	}
}

static void put_records(struct mpi_window *w, int fd, bool bare)
{
	for (unsigned int i = LOCAL; i + BATCH <= SLOTS; i += BATCH) {
		/* Start many puts before the commit of all of them. */
		for (unsigned int k = i; k < i + BATCH; k++) {
			fill(batch[k - i], SLOT, 1, k);
			MPI_Put(batch[k - i], SLOT, MPI_BYTE, 1,
				(MPI_Aint)k * SLOT, SLOT, MPI_BYTE, w->win);
		}
		if (bare)
			MPI_Win_flush(1, w->win);
		else
			must_succeed(mpi_window_persist(w, 1,
							(MPI_Aint)i * SLOT,
							BATCH * SLOT),
				     w, "persist");
		for (unsigned int k = i; k < i + BATCH; k++)
			note_record(fd, k);
	}
}

static void check_refusals(struct mpi_window *w)
{
	EXPECT(mpi_window_persist(w, 2, 0, 1) == -FI_EINVAL, "no such rank");
	EXPECT(mpi_window_persist(w, -1, 0, 1) == -FI_EINVAL, "nor that");
	EXPECT(mpi_window_persist(w, 0, 0, 1) == -FI_EINVAL,
	       "a rank without memory");
	EXPECT(mpi_window_persist(w, 1, 0, 0) == -FI_EINVAL, "nothing");
	EXPECT(mpi_window_persist(w, 1, SLOTS * SLOT, 1) == -FI_EINVAL,
	       "behind the end");
	EXPECT(mpi_window_persist(w, 1, SLOTS * SLOT - 8, 9) == -FI_EINVAL,
	       "across the end");
	EXPECT(mpi_window_persist(w, 1, (MPI_Aint)1 << 62, 8) == -FI_EINVAL,
	       "far behind it");
}

static int verify_file(const char *file, const char *notes)
{
	int fd = open(file, O_RDONLY), nfd = open(notes, O_RDONLY);
	unsigned int i, noted = 0, lost = 0;

	while (nfd >= 0 && read(nfd, &i, sizeof(i)) == sizeof(i)) {
		noted++;
		lost += fd < 0 ||
			pread(fd, record, SLOT, (off_t)i * SLOT) != SLOT ||
			differ(record, SLOT, 1, i);
	}
	printf("%u noted, %u lost\n", noted, lost);
	return lost != 0;
}

static uint8_t *map_pool(const char *path)
{
	int fd = open(path, O_RDWR);
	void *pool = !strcmp(path, "anonymous")
			     ? mmap(NULL, SLOTS * SLOT, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
			     : mmap(NULL, SLOTS * SLOT, PROT_READ | PROT_WRITE,
				    MAP_SHARED, fd, 0);

	if (pool == MAP_FAILED)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return pool;
}

int main(int argc, char **argv)
{
	struct mpi_window w;
	uint8_t *pool = NULL;
	int fd, ret;
	bool bare;
	MPI_Win win;

	if (argc == 4 && !strcmp(argv[1], "verify"))
		return verify_file(argv[2], argv[3]);
	if (argc != 5) {
		fprintf(stderr, "usage: %s POOL NOTES MS BARE\n", argv[0]);
		return 2;
	}
	begin(&argc, &argv);
	bare = atoi(argv[4]);
	if (rank == 1)
		pool = map_pool(argv[1]);
	MPI_Win_create(pool, pool ? SLOTS * SLOT : 0, 1, MPI_INFO_NULL,
		       MPI_COMM_WORLD, &win);
	ret = mpi_window_open(win, MPI_COMM_WORLD, &w);
	if (ret) {
		/*
		 * Every rank gets the error, not only the owner of the window.
		 */
		fprintf(stderr, "rank %d: no durable window: %s\n", rank,
			fi_strerror(-ret));
		MPI_Win_free(&win);
		MPI_Finalize();
		return 3;
	}
	MPI_Win_lock_all(0, win);
	if (!rank)
		check_refusals(&w);
	fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0 || wrong)
		MPI_Abort(MPI_COMM_WORLD, 1);
	if (rank == 1)
		store_local(&w, pool, fd, bare);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 1 && atol(argv[3])) {
		/* Rank 1 computes, while a thread serves its window. */
		long ms = atol(argv[3]);
		struct itimerval when = {
			.it_value = {ms / 1000, ms % 1000 * 1000},
		};

		killed = getenv("RPMEM_KILLED");
		signal(SIGALRM, die);
		setitimer(ITIMER_REAL, &when, NULL);
		for (;;)
			pause();
	}
	if (!rank)
		put_records(&w, fd, bare);
	MPI_Win_unlock_all(win);
	mpi_window_close(&w);
	MPI_Win_free(&win);
	return end();
}
