-- A module file for Lmod: copy it to MODULEPATH as bagpipe/0.1.0.lua, and set the three lines below and depends_on.
local checkout = "/sw/bagpipe_hpc"        -- where it was cloned and set up; an environment does not survive a move
local venv = pathJoin(checkout, ".venv-system")
local site_env = pathJoin(checkout, "my-site.env")    -- your copy of slurm/site.env, for the job scripts

help([[
bagpipe_hpc trains recommendation models with huge embedding tables over MPI.
`bagpipe --help` lists its commands; settings and job scripts are in $BAGPIPE_HOME. In a folder of your own:
sbatch --ntasks=11 $BAGPIPE_HOME/slurm/train.sh CONFIG.toml
]])
whatis("Name: bagpipe_hpc")
whatis("Description: DLRM training over MPI with look-ahead caching of embedding rows")

-- The MPI that `make setup MPI=system` was run with: mpi4py and Horovod are built against it.
depends_on("openmpi/5.0")

prepend_path("PATH", pathJoin(venv, "bin"))
setenv("BAGPIPE_HOME", checkout)
setenv("SITE_ENV", site_env)
-- As scripts/rank_environment.sh sets it, for ranks that are started without the job scripts.
setenv("HOROVOD_CYCLE_TIME", "0.1")
