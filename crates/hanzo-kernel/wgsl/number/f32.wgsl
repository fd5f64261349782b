// The number type of this specialisation, of activations or of a cache: f32. Four of them are read and written at once.

alias Num4 = vec4<f32>;

fn from_num4(raw: Num4) -> vec4<f32> {
    return raw;
}

fn to_num4(v: vec4<f32>) -> Num4 {
    return v;
}
