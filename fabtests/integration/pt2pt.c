// SPDX-License-Identifier: BSD-2-Clause
/*
 * Messages between MPI ranks: sizes, tags, wildcards and send modes, with
 * checks of the bytes.
 */
#include "mpi_test.h"

/* Sizes of injected, eager and rendezvous messages, near the base's limits. */
static const size_t sizes[] = {
	0,	1,     8,     63,    64,    65,	    1000,    4096,
	16320,	16384, 16385, 65536, 65537, 262144, 1 << 20, (4 << 20) - 3,
	4 << 20};
#define NSIZES	(sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST (4 << 20)

static int right_rank(void)
{
	return (rank + 1) % nranks;
}

static int left_rank(void)
{
	return (rank + nranks - 1) % nranks;
}

/* All ranks send around the ring at once, in one send mode. */
static void send_around(int (*send)(const void *, int, MPI_Datatype, int, int,
				    MPI_Comm, MPI_Request *))
{
	uint8_t *out = room(LARGEST), *in = room(LARGEST);

	for (unsigned int i = 0; i < NSIZES; i++) {
		int len = (int)sizes[i], got = -1;
		MPI_Request req[2];
		MPI_Status st[2];

		fill(out, sizes[i], (unsigned int)rank, i);
		memset(in, 0x5a, sizes[i]);
		MPI_Irecv(in, len, MPI_BYTE, left_rank(), (int)i,
			  MPI_COMM_WORLD, &req[0]);
		send(out, len, MPI_BYTE, right_rank(), (int)i, MPI_COMM_WORLD,
		     &req[1]);
		MPI_Waitall(2, req, st);
		MPI_Get_count(&st[0], MPI_BYTE, &got);
		EXPECT(got == len, "%d bytes of %d", got, len);
		EXPECT(st[0].MPI_SOURCE == left_rank() &&
			       st[0].MPI_TAG == (int)i,
		       "source %d, tag %d", st[0].MPI_SOURCE, st[0].MPI_TAG);
		EXPECT(!differ(in, sizes[i], (unsigned int)left_rank(), i),
		       "%zu of %d bytes",
		       differ(in, sizes[i], (unsigned int)left_rank(), i), len);
	}
	free(out);
	free(in);
}

static void test_standard(void)
{
	send_around(MPI_Isend);
}

static void test_synchronous(void)
{
	send_around(MPI_Issend);
}

/* A message arrives before its receive is posted. */
static void test_unexpected(void)
{
	uint8_t *out = room(LARGEST), *in = room(LARGEST);

	for (unsigned int i = 0; i < NSIZES; i++) {
		MPI_Request req;
		MPI_Status st;
		int got = -1;

		fill(out, sizes[i], (unsigned int)rank, i);
		MPI_Isend(out, (int)sizes[i], MPI_BYTE, right_rank(), (int)i,
			  MPI_COMM_WORLD, &req);
		MPI_Probe(left_rank(), (int)i, MPI_COMM_WORLD, &st);
		MPI_Get_count(&st, MPI_BYTE, &got);
		EXPECT(got == (int)sizes[i], "probed %d bytes of %zu", got,
		       sizes[i]);
		MPI_Recv(in, got, MPI_BYTE, left_rank(), (int)i, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		EXPECT(!differ(in, sizes[i], (unsigned int)left_rank(), i),
		       "of %zu bytes", sizes[i]);
		MPI_Wait(&req, MPI_STATUS_IGNORE);
	}
	free(out);
	free(in);
}

/* Receive by tag, in reverse order, up to the highest tag. */
static void test_tags(void)
{
	enum {
		N = 16
	};
	int *ub, has_ub, out[N], in[N], tag[N];
	MPI_Request req[N];

	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &ub, &has_ub);
	for (int i = 0; i < N; i++) {
		tag[i] = i == N - 1 && has_ub ? *ub : i * 1000;
		out[i] = rank * 100 + i;
		MPI_Isend(&out[i], 1, MPI_INT, right_rank(), tag[i],
			  MPI_COMM_WORLD, &req[i]);
	}
	for (int i = N - 1; i >= 0; i--) {
		MPI_Recv(&in[i], 1, MPI_INT, left_rank(), tag[i],
			 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		EXPECT(in[i] == left_rank() * 100 + i, "tag %d: %d", tag[i],
		       in[i]);
	}
	MPI_Waitall(N, req, MPI_STATUSES_IGNORE);
}

/*
 * Receive from any rank with any tag: in each sender's order, and no other
 * message.
 */
static void test_wildcards(void)
{
	enum {
		N = 100
	};
	int next[64] = {0};

	for (int i = 0; rank && i < N; i++) {
		int m[2] = {rank, i};

		MPI_Send(m, 2, MPI_INT, 0, i % 7, MPI_COMM_WORLD);
	}
	for (int i = 0; !rank && i < N * (nranks - 1); i++) {
		MPI_Status st;
		int m[2];

		MPI_Recv(m, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG,
			 MPI_COMM_WORLD, &st);
		EXPECT(m[0] == st.MPI_SOURCE && m[0] > 0 && m[0] < nranks,
		       "from %d it says %d", st.MPI_SOURCE, m[0]);
		EXPECT(m[1] == next[m[0]] && st.MPI_TAG == m[1] % 7,
		       "message %d where %d belongs", m[1], next[m[0]]);
		next[m[0]]++;
	}
}

static void matched_probe(void)
{
	int out = rank + 7, in = -1;
	MPI_Message msg;
	MPI_Request req;
	MPI_Status st;

	MPI_Isend(&out, 1, MPI_INT, right_rank(), 3, MPI_COMM_WORLD, &req);
	MPI_Mprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &msg, &st);
	MPI_Mrecv(&in, 1, MPI_INT, &msg, MPI_STATUS_IGNORE);
	EXPECT(in == st.MPI_SOURCE + 7, "%d from %d", in, st.MPI_SOURCE);
	MPI_Wait(&req, MPI_STATUS_IGNORE);
}

static void test_persistent_requests(void)
{
	enum {
		LEN = 65536,
		ROUNDS = 20
	};
	uint8_t *out = room(LEN), *in = room(LEN);
	MPI_Request req[2];

	MPI_Send_init(out, LEN, MPI_BYTE, right_rank(), 1, MPI_COMM_WORLD,
		      &req[0]);
	MPI_Recv_init(in, LEN, MPI_BYTE, left_rank(), 1, MPI_COMM_WORLD,
		      &req[1]);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		fill(out, LEN, (unsigned int)rank, i);
		MPI_Startall(2, req);
		MPI_Waitall(2, req, MPI_STATUSES_IGNORE);
		EXPECT(!differ(in, LEN, (unsigned int)left_rank(), i),
		       "round %u", i);
	}
	MPI_Request_free(&req[0]);
	MPI_Request_free(&req[1]);
	free(out);
	free(in);
}

/* Many outstanding messages of different sizes, between all ranks. */
static void test_many(void)
{
	enum {
		N = 200
	};
	MPI_Request *req = room(2 * N * sizeof(*req));
	uint8_t *out[N], *in[N];
	int n = 0;

	for (unsigned int i = 0; i < N; i++) {
		size_t len = sizes[i % 12];
		int to = (rank + (int)i) % nranks;
		int from = (rank + nranks - (int)i % nranks) % nranks;

		out[i] = room(len);
		in[i] = room(len);
		fill(out[i], len, (unsigned int)rank, i);
		MPI_Irecv(in[i], (int)len, MPI_BYTE, from, (int)i,
			  MPI_COMM_WORLD, &req[n++]);
		MPI_Isend(out[i], (int)len, MPI_BYTE, to, (int)i,
			  MPI_COMM_WORLD, &req[n++]);
	}
	MPI_Waitall(n, req, MPI_STATUSES_IGNORE);
	for (unsigned int i = 0; i < N; i++) {
		int from = (rank + nranks - (int)i % nranks) % nranks;

		EXPECT(!differ(in[i], sizes[i % 12], (unsigned int)from, i),
		       "message %u from %d", i, from);
		free(out[i]);
		free(in[i]);
	}
	free(req);
}

/* A canceled receive that has matched no message gets no later message. */
static void test_cancelled(void)
{
	int in = -1, out = rank, was = 0;
	MPI_Request req;
	MPI_Status st;

	MPI_Irecv(&in, 1, MPI_INT, left_rank(), 99, MPI_COMM_WORLD, &req);
	MPI_Cancel(&req);
	MPI_Wait(&req, &st);
	MPI_Test_cancelled(&st, &was);
	EXPECT(was, "it was not cancelled");
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Sendrecv(&out, 1, MPI_INT, right_rank(), 99, &in, 1, MPI_INT,
		     left_rank(), 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	EXPECT(in == left_rank(), "got %d", in);
}

static void test_collectives(void)
{
	enum {
		LEN = 16384
	};
	uint8_t *out = room((size_t)LEN * (size_t)nranks);
	uint8_t *in = room((size_t)LEN * (size_t)nranks);
	long mine = rank + 1, sum = 0;

	MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	EXPECT(sum == (long)nranks * (nranks + 1) / 2, "sum %ld", sum);
	for (int i = 0; i < nranks; i++)
		fill(out + (size_t)i * LEN, LEN, (unsigned int)rank,
		     (unsigned int)i);
	MPI_Alltoall(out, LEN, MPI_BYTE, in, LEN, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < nranks; i++)
		EXPECT(!differ(in + (size_t)i * LEN, LEN, (unsigned int)i,
			       (unsigned int)rank),
		       "from %d", i);
	free(out);
	free(in);
}

/* Messages in two communicators with the same tag do not mix. */
static void test_communicators(void)
{
	int out[2] = {rank, -rank - 1}, in[2] = {0, 0};
	MPI_Request req[2];
	MPI_Comm dup;

	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	MPI_Isend(&out[0], 1, MPI_INT, right_rank(), 5, MPI_COMM_WORLD,
		  &req[0]);
	MPI_Isend(&out[1], 1, MPI_INT, right_rank(), 5, dup, &req[1]);
	MPI_Recv(&in[1], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, dup,
		 MPI_STATUS_IGNORE);
	MPI_Recv(&in[0], 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD,
		 MPI_STATUS_IGNORE);
	MPI_Waitall(2, req, MPI_STATUSES_IGNORE);
	EXPECT(in[0] == left_rank() && in[1] == -left_rank() - 1, "%d and %d",
	       in[0], in[1]);
	MPI_Comm_free(&dup);
}

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	test("standard sends of 0 B to 4 MiB", test_standard);
	test("synchronous sends", test_synchronous);
	test("probed, then received", test_unexpected);
	test("taken by tag, last first", test_tags);
	test("any source, any tag", test_wildcards);
	test("matched probe", matched_probe);
	test("persistent requests", test_persistent_requests);
	test("200 each outstanding", test_many);
	test("a cancelled receive", test_cancelled);
	test("collectives", test_collectives);
	test("communicators", test_communicators);
	return end();
}
