# Man pages, sections 1, 3 and 7.
dist_man_MANS += man/fi_rpmem.7 man/fi_rpmem_commit.3 man/fi_rpmem_query.3 \
	man/fi_rpmem_drain.3 man/fi_rpmem_cp.1 man/fi_rpmemd.1 \
	man/fi_rpmem_bench.1 man/fi_rpmem_info.1 \
	man/rpmem_mpi_win_durable.3

# Those of the verbs shim. A page for several calls has a link for each.
shim_mans = man/ibv_rpmem.7 man/ibv_rpmem_attach_cq.3 \
	man/ibv_rpmem_attach_qp.3 man/ibv_rpmem_get_addr.3 \
	man/ibv_rpmem_get_desc.3 man/ibv_rpmem_reg_mr.3 \
	man/ibv_rpmem_wr_atomic_write.3 man/ibv_rpmem_wr_flush.3 \
	man/ibv_rpmem_wr_write_flush.3
EXTRA_DIST += $(shim_mans)
shim_links = dereg_mr=reg_mr detach_cq=attach_cq poll_cq=attach_cq \
	detach_qp=attach_qp connect=get_addr add_region=get_desc \
	del_region=get_desc query_region=get_desc wr_start=wr_flush \
	wr_complete=wr_flush wr_abort=wr_flush
EXTRA_DIST += man/ibv_rpmem_preload.7
if HAVE_PRELOAD
preload_mans = man/ibv_rpmem_preload.7
endif
if HAVE_VERBS
man_MANS = $(shim_mans) $(preload_mans)
install-data-local:
	$(MKDIR_P) $(DESTDIR)$(man3dir)
	cd $(DESTDIR)$(man3dir) && for l in $(shim_links); do \
		rm -f ibv_rpmem_$${l%=*}.3 && \
		$(LN_S) ibv_rpmem_$${l#*=}.3 ibv_rpmem_$${l%=*}.3 || exit; \
	done
uninstall-local:
	for l in $(shim_links); do \
		rm -f $(DESTDIR)$(man3dir)/ibv_rpmem_$${l%=*}.3; done
endif
