// Where the elements of a tensor of up to four axes with strides are, for kernels that write them without gaps.

struct Params {
    // Elements of `out`.
    n: u32,
    // Its inner three sizes, outermost first; the outermost size of all follows from n.
    size_1: u32,
    size_2: u32,
    size_3: u32,
    // Where the first element of `src` is, and the steps of the axes, outermost first.
    offset: u32,
    stride_0: u32,
    stride_1: u32,
    stride_2: u32,
    stride_3: u32,
}
var<immediate> p: Params;

// The place in `src` of element i of `out`.
fn strided_place(i: u32) -> u32 {
    let row_2 = i / p.size_3;
    let row_1 = row_2 / p.size_2;
    let i_0 = row_1 / p.size_1;
    let i_1 = row_1 - i_0 * p.size_1;
    let i_2 = row_2 - row_1 * p.size_2;
    let i_3 = i - row_2 * p.size_3;
    return p.offset + i_0 * p.stride_0 + i_1 * p.stride_1 + i_2 * p.stride_2 + i_3 * p.stride_3;
}
