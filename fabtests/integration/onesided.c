// SPDX-License-Identifier: BSD-2-Clause
/*
 * MPI windows: every kind of access and synchronization, with checks of the
 * bytes.
 */
#include "mpi_test.h"

#define WIN_LEN (1 << 20)

static const char *flavour;
static MPI_Win win;
static uint8_t *mem;

static int right_rank(void)
{
	return (rank + 1) % nranks;
}

static int left_rank(void)
{
	return (rank + nranks - 1) % nranks;
}

/* Clear the window, between barriers of all ranks. */
static void clear_window(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	memset(mem, 0, WIN_LEN);
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Make stores of other ranks visible in a passive epoch. */
static void sync_window(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	MPI_Win_sync(win);
	MPI_Win_unlock(rank, win);
}

static const size_t sizes[] = {1, 7, 8, 64, 100, 4096, 16385, 65536, 262144};
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

static void put_fence(void)
{
	uint8_t *out = room(WIN_LEN);
	size_t at = 3;

	clear_window();
	MPI_Win_fence(0, win);
	for (unsigned int i = 0; i < NSIZES; at += sizes[i] + 5, i++) {
		fill(out + at, sizes[i], (unsigned int)rank, i);
		MPI_Put(out + at, (int)sizes[i], MPI_BYTE, right_rank(),
			(MPI_Aint)at, (int)sizes[i], MPI_BYTE, win);
	}
	MPI_Win_fence(0, win);
	at = 3;
	for (unsigned int i = 0; i < NSIZES; at += sizes[i] + 5, i++) {
		EXPECT(!differ(mem + at, sizes[i], (unsigned int)left_rank(),
			       i),
		       "%zu bytes", sizes[i]);
		EXPECT(!mem[at - 1] && !mem[at + sizes[i]],
		       "written beside %zu bytes", sizes[i]);
	}
	free(out);
}

static void get_fence(void)
{
	uint8_t *in = room(WIN_LEN);
	size_t at = 5;

	clear_window();
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	for (unsigned int i = 0; i < NSIZES; at += sizes[i] + 3, i++)
		fill(mem + at, sizes[i], (unsigned int)rank, i);
	MPI_Win_unlock(rank, win);
	MPI_Win_fence(0, win);
	at = 5;
	for (unsigned int i = 0; i < NSIZES; at += sizes[i] + 3, i++)
		MPI_Get(in + at, (int)sizes[i], MPI_BYTE, right_rank(),
			(MPI_Aint)at, (int)sizes[i], MPI_BYTE, win);
	MPI_Win_fence(0, win);
	at = 5;
	for (unsigned int i = 0; i < NSIZES; at += sizes[i] + 3, i++)
		EXPECT(!differ(in + at, sizes[i], (unsigned int)right_rank(),
			       i),
		       "%zu bytes", sizes[i]);
	free(in);
}

/* All ranks accumulate into rank 0's window. */
static void test_accumulate(void)
{
	enum {
		N = 600
	}; /* more elements than one network atomic */
	int *ints = room(N * sizeof(*ints)), *at0 = (int *)mem;
	double *doubles = room(N * sizeof(*doubles));
	double *at1 = (double *)(mem + 65536);
	long mine = rank + 10, *at2 = (long *)(mem + 131072);

	clear_window();
	for (int i = 0; i < N; i++) {
		ints[i] = rank + i;
		doubles[i] = 0.5 * rank + i;
	}
	MPI_Win_fence(0, win);
	MPI_Accumulate(ints, N, MPI_INT, 0, 0, N, MPI_INT, MPI_SUM, win);
	MPI_Accumulate(doubles, N, MPI_DOUBLE, 0, 65536, N, MPI_DOUBLE, MPI_SUM,
		       win);
	MPI_Accumulate(&mine, 1, MPI_LONG, 0, 131072, 1, MPI_LONG, MPI_MAX,
		       win);
	MPI_Win_fence(0, win);
	for (int i = 0; !rank && i < N; i++) {
		int s = nranks * (nranks - 1) / 2 + nranks * i;

		EXPECT(at0[i] == s, "int %d: %d, not %d", i, at0[i], s);
		EXPECT(at1[i] == 0.25 * nranks * (nranks - 1) + nranks * i,
		       "double %d: %f", i, at1[i]);
	}
	EXPECT(rank || *at2 == nranks + 9, "maximum %ld", *at2);
	MPI_Win_fence(0, win);
	free(ints);
	free(doubles);
}

/* Each value of the counter is fetched exactly once. */
static void fetch_and_op(void)
{
	enum {
		N = 50
	};
	long one = 1, *seen = room((size_t)nranks * N * sizeof(*seen));
	long mine[N], old = -1;

	clear_window();
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < N; i++) {
		MPI_Fetch_and_op(&one, &mine[i], MPI_LONG, 0, 64, MPI_SUM, win);
		MPI_Win_flush(0, win);
		EXPECT(mine[i] > old, "%ld after %ld", mine[i], old);
		old = mine[i];
	}
	MPI_Win_unlock_all(win);
	MPI_Gather(mine, N, MPI_LONG, seen, N, MPI_LONG, 0, MPI_COMM_WORLD);
	for (int i = 0; !rank && i < nranks * N; i++) {
		int times = 0;

		for (int k = 0; k < nranks * N; k++)
			times += seen[k] == i;
		EXPECT(times == 1, "%d was given out %d times", i, times);
	}
	free(seen);
}

/* A lock of compare-and-swaps protects a sum that uses no MPI atomic. */
static void compare_and_swap(void)
{
	enum {
		N = 20
	};
	int free_ = 0, me = rank + 1, was, sum;

	clear_window();
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < N; i++) {
		do {
			MPI_Compare_and_swap(&me, &free_, &was, MPI_INT, 0, 128,
					     win);
			MPI_Win_flush(0, win);
		} while (was);
		MPI_Get(&sum, 1, MPI_INT, 0, 192, 1, MPI_INT, win);
		MPI_Win_flush(0, win);
		sum += rank + 1;
		MPI_Put(&sum, 1, MPI_INT, 0, 192, 1, MPI_INT, win);
		MPI_Win_flush(0, win);
		MPI_Compare_and_swap(&free_, &me, &was, MPI_INT, 0, 128, win);
		MPI_Win_flush(0, win);
		EXPECT(was == me, "the lock was %d's", was);
	}
	MPI_Win_unlock_all(win);
	sync_window();
	memcpy(&sum, mem + 192, sizeof(sum));
	EXPECT(rank || sum == N * nranks * (nranks + 1) / 2, "sum %d", sum);
}

/* MPI's exclusive lock protects a sum that uses no MPI atomic. */
static void exclusive_lock(void)
{
	enum {
		N = 20
	};
	int sum;

	clear_window();
	for (int i = 0; i < N; i++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, nranks - 1, 0, win);
		MPI_Get(&sum, 1, MPI_INT, nranks - 1, 256, 1, MPI_INT, win);
		MPI_Win_flush(nranks - 1, win);
		sum++;
		MPI_Put(&sum, 1, MPI_INT, nranks - 1, 256, 1, MPI_INT, win);
		MPI_Win_unlock(nranks - 1, win);
	}
	sync_window();
	memcpy(&sum, mem + 256, sizeof(sum));
	EXPECT(rank != nranks - 1 || sum == N * nranks, "sum %d", sum);
}

/* Flushed bytes are placed when their target receives a message about them. */
static void flush_then_tell(void)
{
	uint8_t *out = room(WIN_LEN);
	size_t at;

	clear_window();
	MPI_Win_lock_all(0, win);
	for (unsigned int i = 0; i < 40; i++) {
		size_t len = sizes[i % NSIZES];
		int token = 0;

		at = 1000 + 13 * i;
		fill(out, len, (unsigned int)rank, i);
		MPI_Put(out, (int)len, MPI_BYTE, right_rank(), (MPI_Aint)at,
			(int)len, MPI_BYTE, win);
		MPI_Win_flush(right_rank(), win);
		MPI_Sendrecv(&token, 1, MPI_INT, right_rank(), 1, &token, 1,
			     MPI_INT, left_rank(), 1, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		MPI_Win_sync(win);
		EXPECT(!differ(mem + at, len, (unsigned int)left_rank(), i),
		       "round %u, %zu bytes", i, len);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_unlock_all(win);
	free(out);
}

/* After a local flush the source may change without effect on the target. */
static void flush_local(void)
{
	uint8_t out[4096];

	clear_window();
	MPI_Win_lock(MPI_LOCK_SHARED, right_rank(), 0, win);
	for (unsigned int i = 0; i < 16; i++) {
		fill(out, sizeof(out), (unsigned int)rank, i);
		MPI_Put(out, sizeof(out), MPI_BYTE, right_rank(),
			(MPI_Aint)(i * sizeof(out)), sizeof(out), MPI_BYTE,
			win);
		MPI_Win_flush_local(right_rank(), win);
	}
	memset(out, 0xee, sizeof(out));
	MPI_Win_unlock(right_rank(), win);
	sync_window();
	for (unsigned int i = 0; i < 16; i++)
		EXPECT(!differ(mem + i * sizeof(out), sizeof(out),
			       (unsigned int)left_rank(), i),
		       "put %u", i);
}

static void test_requests(void)
{
	enum {
		LEN = 70000
	};
	uint8_t *out = room(LEN), *in = room(LEN);
	MPI_Request req;

	clear_window();
	fill(out, LEN, (unsigned int)rank, 1);
	MPI_Win_lock_all(0, win);
	MPI_Rput(out, LEN, MPI_BYTE, right_rank(), 11, LEN, MPI_BYTE, win,
		 &req);
	MPI_Wait(&req, MPI_STATUS_IGNORE);
	MPI_Win_flush(right_rank(), win);
	MPI_Rget(in, LEN, MPI_BYTE, right_rank(), 11, LEN, MPI_BYTE, win, &req);
	MPI_Wait(&req, MPI_STATUS_IGNORE);
	EXPECT(!differ(in, LEN, (unsigned int)rank, 1), "read back");
	MPI_Win_unlock_all(win);
	sync_window();
	EXPECT(!differ(mem + 11, LEN, (unsigned int)left_rank(), 1), "put");
	free(out);
	free(in);
}

/* Post, start, complete, wait: twenty times around the ring of ranks. */
static void post_start(void)
{
	enum {
		LEN = 5000
	};
	uint8_t *out = room(LEN);
	MPI_Group all, to, from;
	int who;

	clear_window();
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	who = right_rank();
	MPI_Group_incl(all, 1, &who, &to);
	who = left_rank();
	MPI_Group_incl(all, 1, &who, &from);
	for (unsigned int i = 0; i < 20; i++) {
		fill(out, LEN, (unsigned int)rank, i);
		MPI_Win_post(from, 0, win);
		MPI_Win_start(to, 0, win);
		MPI_Put(out, LEN, MPI_BYTE, right_rank(), 77, LEN, MPI_BYTE,
			win);
		MPI_Win_complete(win);
		MPI_Win_wait(win);
		EXPECT(!differ(mem + 77, LEN, (unsigned int)left_rank(), i),
		       "round %u", i);
	}
	MPI_Group_free(&all);
	MPI_Group_free(&to);
	MPI_Group_free(&from);
	free(out);
}

/* A datatype gathers and scatters every third int. */
static void test_strided(void)
{
	enum {
		N = 500
	};
	int *out = room(3 * N * sizeof(*out)), *remote = (int *)mem;
	MPI_Datatype third;

	clear_window();
	for (int i = 0; i < 3 * N; i++)
		out[i] = rank * 10000 + i;
	MPI_Type_vector(N, 1, 3, MPI_INT, &third);
	MPI_Type_commit(&third);
	MPI_Win_fence(0, win);
	MPI_Put(out, 1, third, right_rank(), 4, 1, third, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < N; i++) {
		EXPECT(remote[1 + 3 * i] == left_rank() * 10000 + 3 * i,
		       "%d: %d", i, remote[1 + 3 * i]);
		EXPECT(!remote[2 + 3 * i] && !remote[3 * i], "beside %d", i);
	}
	MPI_Type_free(&third);
	free(out);
}

static void run_test(const char *name, void (*what)(void))
{
	char text[128];

	snprintf(text, sizeof(text), "%s window: %s", flavour, name);
	test(text, what);
}

static void run_all(void)
{
	run_test("puts, fence", put_fence);
	run_test("gets, fence", get_fence);
	run_test("accumulate", test_accumulate);
	run_test("fetch_and_op", fetch_and_op);
	run_test("compare_and_swap", compare_and_swap);
	run_test("exclusive lock", exclusive_lock);
	run_test("flush, then tell", flush_then_tell);
	run_test("flush_local", flush_local);
	run_test("rput, rget", test_requests);
	run_test("post, start, complete, wait", post_start);
	run_test("strided put", test_strided);
}

int main(int argc, char **argv)
{
	uint8_t *memory;

	begin(&argc, &argv);
	flavour = "created";
	memory = room(WIN_LEN);
	mem = memory;
	MPI_Win_create(mem, WIN_LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	run_all();
	MPI_Win_free(&win);
	free(memory);
	flavour = "allocated";
	MPI_Win_allocate(WIN_LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
	run_all();
	MPI_Win_free(&win);
	return end();
}
