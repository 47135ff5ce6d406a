#!/usr/bin/env bash
# Build the documentation as a site in build/site. It fails with exit status 1 if a link leads nowhere, if a page has no
# place in the navigation, or if a page would load a file from the network.
set -euo pipefail
unset CDPATH # in which `cd` would look for the folder
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
site=build/site

NO_MKDOCS_2_WARNING=1 mkdocs build --strict # with --quiet it would not fail on warnings

# What a page would load by itself: scripts, styles, pictures, frames.
if grep -rnoE --include='*.html' '<(script|img|iframe|source)[^>]* src="?(https?:)?//[^" >]*|<link[^>]* href="?(https?:)?//[^" >]*' "$site" \
  | grep -v 'rel="\?canonical'; then
  echo "docs: these come from the network when the page is read; keep them in docs/assets" >&2
  exit 1
fi
if grep -rnE '@import|url\("?(https?:)?//' --include='*.css' "$site"; then
  echo "docs: these styles come from the network; keep them in docs/assets" >&2
  exit 1
fi
printf 'documentation: %d pages; open %s/%s/index.html in a browser\n' "$(find "$site" -name '*.html' | wc -l)" "$PWD" "$site"
