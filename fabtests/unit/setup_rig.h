/* SPDX-License-Identifier: BSD-2-Clause */
/* Secrets, pools and messages for the tests of the set-up protocol. */
#ifndef RP_TEST_SETUP_RIG_H
#define RP_TEST_SETUP_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "util/setup_client.h"
#include "util/setup_server.h"

extern char err[RP_ERR_LEN];
extern const struct rp_secret secret, other;
extern const struct rp_setup_export pools[2];
void same_export(const struct rp_setup_export *a,
		 const struct rp_setup_export *b);

/* The message that was decoded last. */
union any_message {
	struct rp_setup_challenge challenge;
	struct rp_setup_request request;
	struct rp_setup_export export;
	struct rp_setup_list list;
	struct rp_setup_error error;
};
extern union any_message m;
int get_challenge(const void *buf, size_t len);
int get_request(const void *buf, size_t len);
int get_export(const void *buf, size_t len);
int get_list(const void *buf, size_t len);
int get_error(const void *buf, size_t len);

/* Encode one valid message of each kind. Returns their number. */
size_t make_valid_messages(uint8_t bufs[8][4096], size_t *lens);

#endif
