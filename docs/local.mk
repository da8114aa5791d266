# Documentation: contract, protocol, tests.
dist_doc_DATA += README.md NEWS.md docs/guarantees.md docs/protocol.md docs/testing.md \
	docs/architecture.md docs/measurements.md docs/proofs.md docs/operating.md docs/shim.md docs/storage.md \
	docs/versions.md docs/alerts.yml docs/dashboard.json
