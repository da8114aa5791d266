// SPDX-License-Identifier: BSD-2-Clause
/* Any bytes as the headers of a pool file, and any 64 bits as a key. */
/* Included to call its static decoders. */
#include "util/pool.c"

#include "core/wire.h"
#include "fuzz.h"

#define FILE_SIZE (RP_POOL_DATA + 2 * RP_POOL_UNIT)

static void try_key(uint64_t key)
{
	struct rp_key k;

	if (rp_key_parse(key, &k))
		return;
	MUST(rp_key_is_persistent(key) && rp_key_make(&k) == key);
	MUST(rp_key_port(key) == k.port);
	MUST(k.random < 1ull << RP_KEY_RANDOM_BITS);
}

static void try_header(const uint8_t *buf)
{
	uint8_t again[RP_POOL_HDR], *exact = fuzz_exact(buf, RP_POOL_HDR);
	uint32_t version;
	struct header h;

	if (!header_decode(exact, &h, &version)) {
		MUST(h.data == RP_POOL_DATA && h.file_size > h.data);
		MUST(h.parts <= RP_POOL_PARTS &&
		     h.part_len <= (h.file_size - h.data) / (h.parts ?: 1));
		/*
		 * header_decode() ignores the reserved zeros: compare the bytes
		 * before them.
		 */
		header_encode(&h, again);
		MUST(!memcmp(again, buf, 56));
	}
	free(exact);
}

/* Open the pool as the daemon does. The mapped bytes must be accessible. */
static void try_open(int fd)
{
	char path[64], err[RP_ERR_LEN];
	struct rp_pool p;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (rp_pool_open(path, &p, err))
		return;
	MUST(p.map_len == FILE_SIZE && p.size == FILE_SIZE - RP_POOL_DATA);
	((volatile uint8_t *)p.data)[p.size - 1] = 1;
	rp_pool_abandon(&p);
}

/*
 * Input: a key of 8 bytes, a byte of flags, and the first bytes of both
 * headers. Flag bits 0 and 1 add the right checksum to a header, which no
 * fuzzer guesses.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	uint8_t hdr[2][RP_POOL_HDR];
	uint8_t flags;
	int fd;

	try_key(fuzz_u64(&in));
	flags = fuzz_u8(&in);
	fd = memfd_create("pool", MFD_CLOEXEC);
	MUST(fd >= 0 && !posix_fallocate(fd, 0, FILE_SIZE));
	for (unsigned int i = 0; i < 2; i++) {
		fuzz_bytes(&in, hdr[i], 64);
		memset(hdr[i] + 64, 0, RP_POOL_HDR - 64);
		if (flags & 1 << i)
			header_checksum(hdr[i], hdr[i] + SUM_AT);
		try_header(hdr[i]);
		MUST(!rp_pwrite_full(fd, hdr[i], RP_POOL_HDR, RP_POOL_COPY(i)));
	}
	try_open(fd);
	close(fd);
	return 0;
}
