// Chooses experts: softmax over all experts of a token, then the n_used largest by falling weight, the lower id first of
// equals. RENORMALIZE divides the chosen weights by their sum. One workgroup a token; at most 1,024 experts.
//@import reduce

const WG: u32 = 64u;
const EXPERTS_MAX: u32 = 1024u;

struct Params {
    n_rows: u32,
    n_experts: u32,
    n_used: u32,
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;

// Not yet chosen logits.
var<workgroup> left: array<f32, EXPERTS_MAX>;
var<workgroup> values: array<f32, WG>;
var<workgroup> indices: array<u32, WG>;

// The largest logit that is left, at index 0 of `values` and `indices`.
fn largest_left(at: Lane) {
    var best = -3.4028234e38;
    var best_idx = 0xffffffffu;
    for (var e = at.idx; e < p.n_experts; e += WG) {
        if (left[e] > best) {
            best = left[e];
            best_idx = e;
        }
    }
    values[at.idx] = best;
    indices[at.idx] = best_idx;
    workgroupBarrier();
    for (var half = WG / 2u; half > 0u; half >>= 1u) {
        if (at.idx < half) {
            let v = values[at.idx + half];
            let i = indices[at.idx + half];
            if (v > values[at.idx] || (v == values[at.idx] && i < indices[at.idx])) {
                values[at.idx] = v;
                indices[at.idx] = i;
            }
        }
        workgroupBarrier();
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) n_subgroups: u32,
) {
    let at = lane_of(lane, size, subgroup, n_subgroups);
    for (var row = workgroup.x; row < p.n_rows; row += n_workgroups.x) {
        var largest = -3.4028234e38;
        for (var e = at.idx; e < p.n_experts; e += WG) {
            let logit = logits[row * p.n_experts + e];
            left[e] = logit;
            largest = max(largest, logit);
        }
        largest = workgroup_max(largest, at);
        var sum = 0.0;
        for (var e = at.idx; e < p.n_experts; e += WG) {
            sum += exp(left[e] - largest);
        }
        let all = workgroup_sum(sum, at);
        var chosen = 0.0;
        for (var s = 0u; s < p.n_used; s++) {
            largest_left(at);
            // An index that exists even if every logit left is NaN.
            let expert = min(indices[0], p.n_experts - 1u);
            let weight = exp(values[0] - largest) / all;
            chosen += weight;
            workgroupBarrier();
            if (at.idx == 0u) {
                left[expert] = -3.4028234e38;
                ids[row * p.n_used + s] = expert;
                weights[row * p.n_used + s] = weight;
            }
            workgroupBarrier();
        }
//@if RENORMALIZE
        if (at.idx == 0u) {
            for (var s = 0u; s < p.n_used; s++) {
                weights[row * p.n_used + s] /= chosen;
            }
        }
//@end
    }
}
