// Quants times their scale.

fn scaled(quants: vec4<f32>, scale: f32) -> vec4<f32> {
    return quants * scale;
}
