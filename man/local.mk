# Man pages, sections 1, 3, 5 and 7.
dist_man_MANS += man/fi_rpmem.7 man/fi_rpmem_commit.3 man/fi_rpmem_zero.3 man/fi_rpmem_query.3 \
	man/fi_rpmem_drain.3 man/fi_rpmem_cp.1 man/fi_rpmemd.1 man/rpmemd.conf.5 \
	man/fi_rpmem_bench.1 man/fi_rpmem_crashtest.1 man/fi_rpmem_group.1 man/fi_rpmem_info.1 man/fi_rpmem_plugpull.1 \
	man/rpmem_pool.3 man/rpmem_log.3 man/rpmem_raft.3 man/rpmem_rpc.3 \
	man/nbdkit-rpmem-plugin.1 man/rpmem_lead.1 man/rpmem_raft_preload.7 man/rpmem_redis.7

EXTRA_DIST += man/librpmem.7
man_MANS =
if HAVE_PMDK_1_12
man_MANS += man/librpmem.7
endif

# Those of the verbs shim. A page for several calls has a link for each.
shim_mans = man/rpmem_verbs.7 man/rpmem_attach_cq.3 \
	man/rpmem_attach_qp.3 man/rpmem_export_qp.3 \
	man/rpmem_export_mr.3 man/rpmem_reg_mr.3 \
	man/rpmem_wr_atomic_write.3 man/rpmem_wr_flush.3 \
	man/rpmem_wr_write_flush.3
EXTRA_DIST += $(shim_mans)
shim_links = dereg_mr=reg_mr detach_cq=attach_cq poll_cq=attach_cq \
	detach_qp=attach_qp connect_qp=export_qp import_mr=export_mr \
	forget_mr=export_mr create_qp=attach_qp \
	destroy_qp=attach_qp wr_start=wr_flush \
	wr_complete=wr_flush wr_abort=wr_flush
EXTRA_DIST += man/rpmem_preload.7
if HAVE_PRELOAD
preload_mans = man/rpmem_preload.7
endif
if HAVE_VERBS
man_MANS += $(shim_mans) $(preload_mans)
install-data-local:
	$(MKDIR_P) $(DESTDIR)$(man3dir)
	cd $(DESTDIR)$(man3dir) && for l in $(shim_links); do \
		rm -f rpmem_$${l%=*}.3 && \
		$(LN_S) rpmem_$${l#*=}.3 rpmem_$${l%=*}.3 || exit; \
	done
uninstall-local:
	for l in $(shim_links); do \
		rm -f $(DESTDIR)$(man3dir)/rpmem_$${l%=*}.3; done
endif
