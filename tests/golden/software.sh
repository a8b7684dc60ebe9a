#!/bin/bash
#SBATCH --job-name=a.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --chdir=/submitted/from
# a.out on site own: 2 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python python3 --python-key conda.env || exit 1

# ---- Modules ----
type module >/dev/null 2>&1 || source /etc/profile
type module >/dev/null 2>&1 || hpcrun_fail "there is no command module, even after /etc/profile (site key modules)"
hpcrun_module load gcc/13

# ---- Spack ----
source /apps/spack/share/spack/setup-env.sh || hpcrun_fail 'there is no Spack in /apps/spack (site key spack.root)'
spack env activate --dir "${WORK?site key spack.env names it}"/spack/ml || hpcrun_fail 'the Spack environment ${WORK}/spack/ml cannot be activated (site key spack.env)'
spack load openmpi@5 || hpcrun_fail 'Spack cannot load openmpi@5 (site key spack.load)'
spack load py-mpi4py || hpcrun_fail 'Spack cannot load py-mpi4py (site key spack.load)'

# ---- The Python environment ----
source /apps/miniforge3/etc/profile.d/conda.sh || hpcrun_fail 'there is no conda in /apps/miniforge3 (site key conda.root)'
conda activate 'tf 2.17' || hpcrun_fail 'the conda environment tf 2.17 cannot be activated (site key conda.env)'

# ---- Environment ----
export MPIR_CVAR_CH4_NETMOD=ofi
export HPCRUN_NTASKS=2 HPCRUN_SITE_NAME=own HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE=pmi2 HPCRUN_GPUS_PER_NODE=0 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 1
hpcrun_launch --launcher srun --ranks 2 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores -- \
  srun --ntasks=2 --nodes=2 --ntasks-per-node=1 --mpi=pmi2 --kill-on-bad-exit=1 @rank \
  ./a.out 'two words'
