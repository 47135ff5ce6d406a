"""Spack recipe: `spack repo add packaging/spack`, then in a checkout `spack dev-build bagpipe-hpc@0.1.0`."""

from spack.package import depends_on, license, variant, version
from spack_repo.builtin.build_systems.python import PythonPackage


class BagpipeHpc(PythonPackage):
    """Trains recommendation models with embedding tables that are too large for one trainer, over MPI."""

    version("0.1.0")

    license("Apache-2.0")

    variant("cuda", default=False, description="Kernels for GPUs")
    variant("horovod", default=False, description="Sums of dense gradients by Horovod, else by MPI")

    depends_on("cxx", type="build")
    depends_on("cuda@11.8:", when="+cuda", type="build")
    depends_on("mpi", type=("build", "run"))
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-h5py@3.10:", type=("build", "run"))
    depends_on("py-mpi4py@4:", type=("build", "run"))
    depends_on("py-numpy@2:", type=("build", "run"))
    depends_on("py-pyarrow@15: +parquet", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-torch@2.4:", type=("build", "run"))
    # Built with C++17, which the headers of torch want: scripts/build_horovod.sh shows the change.
    depends_on("py-horovod@0.28.1 frameworks=pytorch controllers=mpi", when="+horovod", type=("build", "run"))

    def setup_build_environment(self, env):
        """Whether setup.py calls nvcc."""
        env.set("BAGPIPE_BUILD_CUDA", "1" if self.spec.satisfies("+cuda") else "0")
