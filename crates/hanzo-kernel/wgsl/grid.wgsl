// Threads of a one-dimensional launch, for kernels that stride over their elements: the grid may be smaller than the work
// (a dimension has at most 65,535 workgroups).

// Workgroup size of all one-dimensional kernels.
const WG: u32 = 256u;

struct Thread {
    // Index of this thread in the grid.
    idx: u32,
    // Threads of the grid.
    n: u32,
}

fn grid_thread(workgroup: vec3<u32>, n_workgroups: vec3<u32>, local: u32) -> Thread {
    return Thread(workgroup.x * WG + local, n_workgroups.x * WG);
}
