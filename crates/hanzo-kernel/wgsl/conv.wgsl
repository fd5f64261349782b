// Convolution with zeros around: out[b, o, y, x] = Σ w[o, c, ky, kx] · x[b, c', y · stride + ky · dilation − padding, …] (+ bias[o])
// over the channels c' of o's group, images [B, C, H, W], weights [O, C / groups, KH, KW] of the number type. DIMS 1 leaves the
// height out of all of it. Padding below and to the right is what the size of `out` says.
//
// A thread has OUTPUTS consecutive output channels of one group at one place, so that a value of x serves all of them.
//@import grid
//@import <number>

const OUTPUTS: u32 = 4u;

struct Params {
    // Threads that have work: B · groups · blocks of a group's output channels · places.
    n: u32,
    groups: u32,
    // Channels of a group, in and out.
    group_in: u32,
    group_out: u32,
    width: u32,
    out_width: u32,
    kernel_width: u32,
    stride_x: u32,
    padding_x: u32,
    dilation_x: u32,
//@if DIMS == 2
    height: u32,
    out_height: u32,
    kernel_height: u32,
    stride_y: u32,
    padding_y: u32,
    dilation_y: u32,
//@end
}
var<immediate> p: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<Num4>;
//@if BIAS
@group(0) @binding(2) var<storage, read> bias: array<f32>;
//@end
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

fn weight(i: u32) -> f32 {
    return from_num4(w[i >> 2u])[i & 3u];
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) n_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
//@if DIMS == 2
    let places = p.out_height * p.out_width;
    let plane = p.height * p.width;
    let kernel = p.kernel_height * p.kernel_width;
//@else
    let places = p.out_width;
    let plane = p.width;
    let kernel = p.kernel_width;
//@end
    let blocks = (p.group_out + OUTPUTS - 1u) / OUTPUTS;
    let thread = grid_thread(workgroup, n_workgroups, local);
    for (var i = thread.idx; i < p.n; i += thread.n) {
        let block = i / places;
        let place = i - block * places;
        // The image and group together, counted over all images.
        let image_group = block / blocks;
        let first_out = (block - image_group * blocks) * OUTPUTS;
        let group = image_group % p.groups;
        let n_out = min(OUTPUTS, p.group_out - first_out);
        let w_first = (group * p.group_out + first_out) * p.group_in * kernel;
//@if DIMS == 2
        let y = place / p.out_width;
        let x_place = place - y * p.out_width;
//@else
        let x_place = place;
//@end
        var sums = array<f32, OUTPUTS>();
        for (var c = 0u; c < p.group_in; c++) {
            let x_first = (image_group * p.group_in + c) * plane;
            let w_channel = w_first + c * kernel;
//@if DIMS == 2
            for (var ky = 0u; ky < p.kernel_height; ky++) {
                // What lies above the image wraps to a row far below.
                let row = y * p.stride_y + ky * p.dilation_y - p.padding_y;
                if (row < p.height) {
                    for (var kx = 0u; kx < p.kernel_width; kx++) {
                        let column = x_place * p.stride_x + kx * p.dilation_x - p.padding_x;
                        if (column < p.width) {
                            let v = x[x_first + row * p.width + column];
                            for (var o = 0u; o < n_out; o++) {
                                sums[o] += v * weight(w_channel + o * p.group_in * kernel + ky * p.kernel_width + kx);
                            }
                        }
                    }
                }
            }
//@else
            for (var kx = 0u; kx < p.kernel_width; kx++) {
                // What lies left of the row wraps to a place far to the right.
                let column = x_place * p.stride_x + kx * p.dilation_x - p.padding_x;
                if (column < p.width) {
                    let v = x[x_first + column];
                    for (var o = 0u; o < n_out; o++) {
                        sums[o] += v * weight(w_channel + o * p.group_in * kernel + kx);
                    }
                }
            }
//@end
        }
        for (var o = 0u; o < n_out; o++) {
            var sum = sums[o];
//@if BIAS
            sum += bias[group * p.group_out + first_out + o];
//@end
            out[(image_group * p.group_out + first_out + o) * places + place] = sum;
        }
    }
}
