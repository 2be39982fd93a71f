#!/usr/bin/env bash
# Shows one real decision: starts dgemma-server on the demo checkpoint and a free port, asks it with dgem, stops it.
# Called by `make demo`, which builds both programs first.
set -euo pipefail
. "$(dirname "$0")/server.sh"
start_server "$root/fixtures/demo-model"
"$root/bin/dgem" decide -u "$url/v1" -t "$root/templates/support_triage.json.tmpl" \
  -v 'ticket=I was billed $500 twice for my annual renewal this morning!' --stats
