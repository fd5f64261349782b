// Sum and maximum over a workgroup. Every thread calls them, from uniform control flow, and has the result.
//@import lane

// One part per subgroup: 256 threads in subgroups of 8.
var<workgroup> parts: array<f32, 32>;

fn workgroup_sum(v: f32, at: Lane) -> f32 {
    let part = subgroupAdd(v);
    if (at.lane == 0u) {
        parts[at.subgroup] = part;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < at.n_subgroups; i++) {
        sum += parts[i];
    }
    // The next call writes the parts again.
    workgroupBarrier();
    return sum;
}

fn workgroup_max(v: f32, at: Lane) -> f32 {
    let part = subgroupMax(v);
    if (at.lane == 0u) {
        parts[at.subgroup] = part;
    }
    workgroupBarrier();
    var largest = parts[0];
    for (var i = 1u; i < at.n_subgroups; i++) {
        largest = max(largest, parts[i]);
    }
    workgroupBarrier();
    return largest;
}
