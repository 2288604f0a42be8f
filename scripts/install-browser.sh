#!/bin/sh
# Install Chromium for the tests that open the report in a browser. Where that is
# not possible, say so: those tests then skip.
set -u
for browser in chromium chromium-browser google-chrome; do
    if command -v "$browser" >/dev/null 2>&1; then
        exit 0
    fi
done
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
fi
if command -v apt-get >/dev/null 2>&1; then
    $as_root apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq \
            --no-install-recommends chromium >/dev/null && exit 0
fi
echo "No browser could be installed; the tests that need one will skip." >&2
exit 0
