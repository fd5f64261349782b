// The activation of a specialisation.

//@if ACTIVATION == silu
fn activate(x: f32) -> f32 {
    return x / (1.0 + exp(-x));
}
//@elif ACTIVATION == gelu_tanh
// ½(1 + tanh u) = 1 / (1 + e^(−2u)), without the cancellation.
fn activate(x: f32) -> f32 {
    let u = 0.7978845608 * (x + 0.044715 * x * x * x);
    return x / (1.0 + exp(-2.0 * u));
}
//@elif ACTIVATION == gelu_erf
// The complementary error function of |x| by W. J. Cody's form of Abramowitz and Stegun 7.1.26 is too coarse; this is the
// Chebyshev fit of Numerical Recipes (erfcc), relative error below 1.2e-7 everywhere.
fn activate(x: f32) -> f32 {
    let z = abs(x) * 0.70710678;
    let t = 1.0 / (1.0 + 0.5 * z);
    let poly = -1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806
        + t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277))))))));
    let erfc = t * exp(-z * z + poly);
    return x * select(1.0 - 0.5 * erfc, 0.5 * erfc, x < 0.0);
}
//@elif ACTIVATION == sigmoid
fn activate(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-x));
}
//@elif ACTIVATION == relu
fn activate(x: f32) -> f32 {
    return max(x, 0.0);
}
//@elif ACTIVATION == tanh
//@import tanh
fn activate(x: f32) -> f32 {
    return safe_tanh(x);
}
//@else
fn activate(x: f32) -> f32 {
    return exp(x);
}
//@end
