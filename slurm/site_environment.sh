# shellcheck shell=bash
# Takes on what the site's env file says: modules, variables, and the environment with `bagpipe` on PATH. Sourced by the job
# scripts in the root of the checkout.

# shellcheck source=slurm/site.env
source "${SITE_ENV:-slurm/site.env}"
for name in MODULES VENV LAUNCHER SITE_VARIABLES; do
  if ! declare -p "$name" &>/dev/null; then
    echo "${SITE_ENV:-slurm/site.env}: $name is not set; take its line from slurm/site.env" >&2
    exit 2
  fi
done
if [ ${#MODULES[@]} -gt 0 ]; then
  set +u # some sites' `module` uses variables that are not set
  module load "${MODULES[@]}"
  set -u
fi
if [ ${#SITE_VARIABLES[@]} -gt 0 ]; then export "${SITE_VARIABLES[@]}"; fi
if [[ $VENV != /* ]]; then VENV=$PWD/$VENV; fi
export PATH="$VENV/bin:$PATH"
# Ranks get all of this: where sbatch was told --export=NONE, srun would otherwise give them nothing of it.
export SLURM_EXPORT_ENV=ALL
