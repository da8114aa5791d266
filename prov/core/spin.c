// SPDX-License-Identifier: BSD-2-Clause
/* Decide between polling and sleeping; back off after useless polling. */
#include "core/spin.h"

bool rp_spin(struct rp_spin *s, uint64_t ns, bool came, uint64_t now)
{
	if (came && s->until)
		s->missed = 0;
	if (came && ns && !s->skip) {
		s->until = now + ns;
		return true;
	}
	if (came) {
		s->skip -= s->skip > 0;
		s->until = 0;
	}
	if (now < s->until)
		return true;
	if (s->until) {
		s->missed = 2 * s->missed + 1;
		if (s->missed > RP_SPIN_MAX_SKIPPED)
			s->missed = RP_SPIN_MAX_SKIPPED;
		s->skip = s->missed;
	}
	s->until = 0;
	return false;
}
