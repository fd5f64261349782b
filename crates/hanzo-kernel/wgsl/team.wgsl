// Sums over teams of 32 consecutive threads, whatever the size of a subgroup. Every thread of the workgroup calls them, from
// uniform control flow, and has its team's result. The kernel defines WG.
//@import lane

const TEAM: u32 = 32u;

var<workgroup> team_parts: array<f32, WG>;

fn team_sum(v: f32, at: Lane) -> f32 {
    var sum = v;
    for (var distance = min(TEAM, at.size) / 2u; distance > 0u; distance >>= 1u) {
        sum += subgroupShuffleXor(sum, distance);
    }
    // The same way for all threads of a device.
    if (at.size < TEAM) {
        team_parts[at.idx] = sum;
        workgroupBarrier();
        let first = at.idx & ~(TEAM - 1u);
        sum = 0.0;
        for (var i = 0u; i < TEAM; i += at.size) {
            sum += team_parts[first + i];
        }
        workgroupBarrier();
    }
    return sum;
}
