#!/bin/bash
#SBATCH --job-name=a.out
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --mem=64G
#SBATCH --time=1-0
#SBATCH --partition=gpu
#SBATCH --account=lab
#SBATCH --gres=gpu:a100:4
#SBATCH --chdir=/submitted/from
#SBATCH --hint=nomultithread
# a.out on site own: 8 ranks by srun. Rendered by hpcrun VERSION.

# ---- The run: its record, its signals and how each rank starts are in hpcrun's bash library ----
export HPCRUN_RUN_DIR=/runs/RUN
hpcrun_library=/hpcrun/shell
[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell  # this run's own copy
builtin source "$hpcrun_library/job.bash" VERSION slurm --python /apps/hpcrun/bin/python || exit 1

# ---- Modules ----
type module >/dev/null 2>&1 || source /etc/profile
type module >/dev/null 2>&1 || hpcrun_fail "there is no command module, even after /etc/profile (site key modules)"
hpcrun_module purge
hpcrun_module use /apps/modules
hpcrun_module load gcc/12
hpcrun_module load openmpi/5

# ---- Environment ----
export PATH=/apps/hpcrun/bin${PATH:+:$PATH}
[ -z "${HOME-}" ] || export LD_LIBRARY_PATH="${HOME}"'/b lib'${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH=/opt/a/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export MPIR_CVAR_CH4_NETMOD=ofi
export NCCL_DEBUG=WARN
export TMPDIR="${SCRATCH?site key environment.TMPDIR names it}"/tmp
export HPCRUN_DATA_IMAGENET=/data/imagenet
export HPCRUN_NTASKS=8 HPCRUN_SITE_NAME=own HPCRUN_LAUNCHER=srun HPCRUN_MPI_TYPE=pmi2 HPCRUN_GPUS_PER_NODE=4 HPCRUN_LOG_LEVEL=WARNING
export PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export KEY='it'"'"'s'

# ---- The site's setup ----
ulimit -s unlimited

# The user's variables override all others.
export KEY='it'"'"'s'

# ---- CUDA's files for XLA and TensorFlow ----
hpcrun_accepts_xla_flags && export XLA_FLAGS=--xla_gpu_enable_triton_gemm=false"${XLA_FLAGS:+ $XLA_FLAGS}"
hpcrun_cuda \
  '--data-dir=${CUDA_HOME}' &&
  export XLA_FLAGS="${XLA_FLAGS:+$XLA_FLAGS }--xla_gpu_cuda_data_dir=$HPCRUN_RUN_DIR/cuda"

# ---- Launch ----
hpcrun_hostfile plain --nodes 2 --ntasks-per-node 4
hpcrun_launch --launcher srun --ranks 8 --stop-signal USR2 --rank SLURM_PROCID --local-rank SLURM_LOCALID \
  --local-ranks SLURM_STEP_TASKS_PER_NODE --wired 'PMI_RANK PMI_FD PMIX_RANK' --cpu-bind cores \
  --visible CUDA_VISIBLE_DEVICES --gpus 0,1,2,3 --gpus-per-rank 1 -- \
  srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --mpi=pmi2 --kill-on-bad-exit=1 @rank \
  ./a.out 'two words'

# ---- The site's teardown ----
rm -rf /scratch/$USER/tmp
