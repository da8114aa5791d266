// SPDX-License-Identifier: BSD-2-Clause
/*
 * Rank 0 puts a record into a window that rank 1 has on a file:
 *
 *   mpicc -o mpi_window mpi_window.c -lfabric
 *   mpirun -np 2 (README.md, "From MPI") ./mpi_window FILE
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include "mpi_window.h"

int main(int argc, char **argv)
{
	char text[] = "record\n";
	struct mpi_window w;
	void *pool = NULL;
	MPI_Aint size = 0;
	MPI_Win win;
	int rank, fd, ret;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 1) {
		size = 1 << 20; /* bytes of rank 1's part */
		fd = open(argv[1], O_RDWR);
		pool = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			    0);
		if (fd < 0 || pool == MAP_FAILED)
			MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Win_create(pool, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	ret = mpi_window_open(win, MPI_COMM_WORLD, &w);
	if (ret) {
		fprintf(stderr, "it cannot be durable: %s\n",
			fi_strerror(-ret));
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Win_lock_all(0, win);
	if (rank == 0) {
		MPI_Put(text, sizeof(text), MPI_BYTE, 1, 0, sizeof(text),
			MPI_BYTE, win);
		ret = mpi_window_persist(&w, 1, 0, sizeof(text));
		puts(ret ? w.why : "durable in rank 1");
	}
	MPI_Win_unlock_all(win);
	mpi_window_close(&w);
	MPI_Win_free(&win);
	return MPI_Finalize();
}
