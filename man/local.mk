# Man pages, sections 1, 3 and 7.
dist_man_MANS += man/fi_rpmem.7 man/fi_rpmem_commit.3 man/fi_rpmem_query.3 \
	man/fi_rpmem_drain.3 man/fi_rpmem_cp.1 man/fi_rpmemd.1 \
	man/fi_rpmem_bench.1 man/fi_rpmem_info.1
