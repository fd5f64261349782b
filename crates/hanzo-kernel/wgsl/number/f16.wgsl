// The number type of this specialisation, of activations or of a cache: f16. Four of them are read and written at once.

alias Num4 = vec2<u32>;

fn from_num4(raw: Num4) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(raw.x), unpack2x16float(raw.y));
}

fn to_num4(v: vec4<f32>) -> Num4 {
    return vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw));
}
