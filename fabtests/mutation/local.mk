# What breaks the code and sees that the tests notice; run by util/check.sh.
EXTRA_DIST += fabtests/mutation/mutate fabtests/mutation/mutants.py \
	fabtests/mutation/lab.py fabtests/mutation/named.py fabtests/mutation/survivors.txt \
	fabtests/mutation/named
