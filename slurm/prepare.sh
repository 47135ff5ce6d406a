#!/usr/bin/env bash
# Turn raw clicks into shards, as a Slurm job on one node.
#
#   sbatch [sbatch options] slurm/prepare.sh --format criteo --input train.txt --output data/criteo_kaggle
#
# The arguments are those of `bagpipe prepare`.
#SBATCH --job-name=bagpipe-prepare
#SBATCH --nodes=1                     # one process reads the rows in order: row numbers are given in that order
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4             # parsing and compression run on several threads
#SBATCH --mem=16G                     # the vocabularies of all columns are held until the last row is read
#SBATCH --time=12:00:00               # an end that the scheduler knows lets smaller jobs pass before this one
#SBATCH --requeue                     # after a node's death the job comes again, and goes on after what is finished
#SBATCH --output=%x-%j.log            # named by job: a second run does not overwrite it
#SBATCH --open-mode=append            # a requeued job goes on in the same log
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?start this script with sbatch, in the root of the checkout}"
# shellcheck source=slurm/site_environment.sh
source slurm/site_environment.sh

exec bagpipe prepare "$@"
