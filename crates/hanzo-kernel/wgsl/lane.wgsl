// A thread's place in its workgroup, numbered so that the threads of a subgroup follow each other whatever the device does:
// `local_invocation_index` promises no such thing. Subgroups are full, since workgroup sizes are multiples of every size
// in use, and have at least 8 threads.

struct Lane {
    // Thread of the workgroup.
    idx: u32,
    // Thread of the subgroup.
    lane: u32,
    // Subgroup of the workgroup, and their number.
    subgroup: u32,
    n_subgroups: u32,
    // Threads of a subgroup.
    size: u32,
}

fn lane_of(lane: u32, size: u32, subgroup: u32, n_subgroups: u32) -> Lane {
    return Lane(subgroup * size + lane, lane, subgroup, n_subgroups, size);
}
