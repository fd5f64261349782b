// The hyperbolic tangent without the overflow that some devices' own has for large arguments.

fn safe_tanh(x: f32) -> f32 {
    let e = exp(-2.0 * abs(x));
    // Below 1/8 the difference 1 − e cancels; the series is exact there to f32.
    let x2 = x * x;
    let small = x * (1.0 + x2 * (-0.33333333 + x2 * (0.13333333 + x2 * (-0.053968254 + x2 * 0.021869488))));
    let large = sign(x) * (1.0 - e) / (1.0 + e);
    return select(large, small, abs(x) < 0.25);
}
