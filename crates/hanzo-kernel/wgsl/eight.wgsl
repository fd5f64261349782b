// Sums and maxima over eight consecutive threads, which lie in one subgroup on every device we use.

fn max_of_8(v: f32) -> f32 {
    var m = max(v, subgroupShuffleXor(v, 1u));
    m = max(m, subgroupShuffleXor(m, 2u));
    return max(m, subgroupShuffleXor(m, 4u));
}

fn sum_of_8(v: f32) -> f32 {
    var sum = v + subgroupShuffleXor(v, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    return sum + subgroupShuffleXor(sum, 4u);
}
