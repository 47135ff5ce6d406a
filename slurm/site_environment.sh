# shellcheck shell=bash
# Applies what the site's env file says: modules, variables, and the environment with `bagpipe` on PATH. The job scripts source
# it, in the folder in which sbatch was called.
#
#   home   the root of the checkout

site_env=${SITE_ENV:-$home/slurm/site.env}
site_fail() {
  local unset=''
  if [ -z "${SITE_ENV:-}" ]; then unset=" (SITE_ENV is not set)"; fi
  echo "$site_env$unset: $*" >&2
  exit 2
}

if [[ $site_env != /* ]]; then site_env=$PWD/$site_env; fi # `source` would look for the name on PATH
if ! [ -r "$site_env" ]; then site_fail "cannot be read; SITE_ENV is to name your copy of slurm/site.env, best by its full path"; fi
# shellcheck source=slurm/site.env
source "$site_env"
for name in MODULES VENV LAUNCHER SITE_VARIABLES; do
  if ! declare -p "$name" &>/dev/null; then site_fail "$name is not set; take its line from slurm/site.env"; fi
done
if [ ${#MODULES[@]} -gt 0 ]; then
  if ! type module &>/dev/null; then
    site_fail "MODULES names some, and this shell has no \`module\`; source what defines it in this file, such as /etc/profile.d/lmod.sh"
  fi
  set +u # some sites' `module` uses variables that are not set
  module load "${MODULES[@]}"
  set -u
fi
if [ ${#SITE_VARIABLES[@]} -gt 0 ]; then export "${SITE_VARIABLES[@]}"; fi
if [[ $VENV != /* ]]; then VENV=$home/$VENV; fi
if ! [ -x "$VENV/bin/bagpipe" ]; then
  site_fail "VENV: no bin/bagpipe in $VENV on $HOSTNAME; run \`make setup\` (MPI=system for .venv-system), or name what it has made"
fi
read -r interpreter _ <"$VENV/bin/bagpipe"
if [[ $interpreter == '#!/'* ]] && ! [ -x "${interpreter#'#!'}" ]; then
  site_fail "VENV: $VENV/bin/bagpipe is run by ${interpreter#'#!'}, which you may not run on $HOSTNAME; make the environment with a" \
    "Python that all users and nodes see: make setup PYTHON=/usr/bin/python3"
fi
export PATH="$VENV/bin:$PATH"
# Ranks get all of this: after `sbatch --export=NONE`, srun would otherwise give them none of it.
export SLURM_EXPORT_ENV=ALL
