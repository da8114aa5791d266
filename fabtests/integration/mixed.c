// SPDX-License-Identifier: BSD-2-Clause
/*
 * All at once, until killed: messages between random ranks, puts into windows
 * on pool files, and commits to the same files by libfabric. Each rank notes
 * acknowledged records; "verify" compares them afterwards.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mixed.h"
#include "mpi_test.h"

#define MESSAGE 20000

static uint64_t rng;
static struct mixed_note_file notes;
static MPI_Win win;
static uint8_t record[MIXED_SLOT];

static uint64_t random_below(uint64_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % below;
}

static int pick_other_rank(void)
{
	return (rank + 1 + (int)random_below((uint64_t)nranks - 1)) % nranks;
}

/* --- messages, whose bytes the receiver checks --- */

static uint8_t inbox[MESSAGE], outbox[MESSAGE];
static MPI_Request coming, leaving = MPI_REQUEST_NULL;

static void expect_one(void)
{
	MPI_Irecv(inbox, MESSAGE, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
		  MPI_COMM_WORLD, &coming);
}

static void look_at_messages(void)
{
	MPI_Status st;
	int done, len;

	MPI_Test(&coming, &done, &st);
	if (!done)
		return;
	MPI_Get_count(&st, MPI_BYTE, &len);
	if (differ(inbox, (size_t)len, (unsigned int)st.MPI_SOURCE,
		   (unsigned int)st.MPI_TAG)) {
		fprintf(stderr, "WRONG bytes in a message of rank %d\n",
			st.MPI_SOURCE);
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
	mixed_note(&notes, MIXED_MESSAGE, st.MPI_SOURCE, 0);
	expect_one();
}

static void send_one(void)
{
	unsigned int what = (unsigned int)random_below(30000);
	size_t len =
		random_below(4) ? random_below(200) : random_below(MESSAGE);
	int done;

	MPI_Test(&leaving, &done, MPI_STATUS_IGNORE);
	if (!done)
		return;
	fill(outbox, len, (unsigned int)rank, what);
	MPI_Isend(outbox, (int)len, MPI_BYTE, pick_other_rank(), (int)what,
		  MPI_COMM_WORLD, &leaving);
}

/* --- records, one outstanding for each pair of ranks and kind --- */

static uint32_t next[MIXED_KINDS][MIXED_RANKS];

static void put_one(int to)
{
	uint32_t seq = next[MIXED_PUT][to];
	MPI_Aint at = (MPI_Aint)mixed_place(MIXED_PUT, rank, seq);
	int len = (int)mixed_record(record, MIXED_PUT, rank, to, seq,
				    notes.incarnation);

	if (seq % 3)
		MPI_Put(record, len, MPI_BYTE, to, at, len, MPI_BYTE, win);
	else
		MPI_Accumulate(record, len / 8, MPI_LONG, to, at, len / 8,
			       MPI_LONG, MPI_REPLACE, win);
	MPI_Win_flush(to, win);
}

static void commit_one(int to)
{
	uint32_t seq = next[MIXED_COMMIT][to];
	size_t len = mixed_record(record, MIXED_COMMIT, rank, to, seq,
				  notes.incarnation);

	mixed_direct_write(to, record, len,
			   mixed_place(MIXED_COMMIT, rank, seq), seq % 2);
}

static void run_program(void)
{
	for (;;) {
		int kind = random_below(2) ? MIXED_PUT : MIXED_COMMIT,
		    to = pick_other_rank();

		look_at_messages();
		send_one();
		if (kind == MIXED_PUT)
			put_one(to);
		else
			commit_one(to);
		mixed_note(&notes, kind, to, next[kind][to]++);
	}
}

static void *map_pool(const char *dir)
{
	char path[4096];
	void *pool;
	int fd;

	snprintf(path, sizeof(path), "%s/pool.%d", dir, rank);
	fd = open(path, O_RDWR | O_CLOEXEC);
	pool = fd < 0 ? MAP_FAILED
		      : mmap(NULL, MIXED_POOL, PROT_READ | PROT_WRITE,
			     MAP_SHARED, fd, 0);
	if (pool == MAP_FAILED) {
		perror(path);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	close(fd);
	return pool;
}

int main(int argc, char **argv)
{
	uint8_t *pool;
	FILE *f;
	char path[4096];

	if (argc == 4 && !strcmp(argv[1], "verify"))
		return mixed_verify(argv[2], argv[3]);
	if (argc != 4) {
		fprintf(stderr,
			"usage: %s DIR SEED LIFE\n"
			"       %s verify DIR pool|shadow\n",
			argv[0], argv[0]);
		return 2;
	}
	begin(&argc, &argv);
	if (nranks < 2 || nranks > MIXED_RANKS)
		MPI_Abort(MPI_COMM_WORLD, 2);
	rng = (strtoull(argv[2], NULL, 0) * 64 + (uint64_t)rank) * 1000003 +
	      strtoull(argv[3], NULL, 0) + 1;
	mixed_note_open(&notes, argv[1], rank, (uint32_t)atoi(argv[3]), next);
	pool = map_pool(argv[1]);
	MPI_Win_create(pool, MIXED_WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
		       &win);
	mixed_direct_open(pool);
	MPI_Win_lock_all(0, win);
	expect_one();
	MPI_Barrier(MPI_COMM_WORLD);
	/*
	 * From now on kills.sh may kill this rank, whose pid is in this file.
	 */
	snprintf(path, sizeof(path), "%s/pid.%d", argv[1], rank);
	f = fopen(path, "we");
	if (!f)
		MPI_Abort(MPI_COMM_WORLD, 1);
	fprintf(f, "%d\n", (int)getpid());
	fclose(f);
	run_program();
}
