//! What holds for every row of `FORMATS`, on random blocks: the traits say what the decoders do, nothing panics on any
//! bytes, and the two instantiations of a decoder agree.

use hanzo_quant::{FORMATS, Format, GROUP, Group, TypeError, Unpack};

/// Marsaglia's xorshift64, for bytes that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 32) as u8).collect()
    }
}

fn format(name: &str) -> &'static Format {
    Format::from_name(name).unwrap_or_else(|| panic!("{name} is a format"))
}

fn decoded(decode: hanzo_quant::Decode, format: &Format, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; bytes.len() / format.block_bytes * format.block_elems];
    decode(bytes, &mut out);
    out
}

fn groups(format: &Format, bytes: &[u8]) -> Vec<Group> {
    let Unpack::Int(unpack) = format.unpack else { return Vec::new() };
    let n_groups = format.block_elems / GROUP;
    bytes.chunks(format.block_bytes).flat_map(|b| (0..n_groups).map(move |g| unpack(b, g))).collect()
}

#[test]
fn rows_are_sound_and_unique() {
    let mut last_id = None;
    for f in FORMATS {
        assert_eq!(f.fields.iter().map(|field| field.bytes).sum::<usize>(), f.block_bytes, "{}", f.name);
        assert!(f.fields.iter().all(|field| field.bytes > 0 && !field.name.is_empty()), "{}", f.name);
        assert!(last_id < Some(f.ggml_type), "{}: ids ascend, so they are unique", f.name);
        last_id = Some(f.ggml_type);
        assert_eq!(Format::from_ggml_type(f.ggml_type), Ok(f));
        assert_eq!(format(&f.name.to_lowercase()), f, "names are unique in any case");
        let is_plain = matches!(f.unpack, Unpack::Scalar(_));
        assert_eq!(is_plain, f.block_elems == 1, "{}", f.name);
        assert_eq!(is_plain, f.scale_group == 1, "{}", f.name);
        assert!(is_plain || f.block_elems % GROUP == 0 && f.block_elems % f.scale_group == 0, "{}", f.name);
    }
}

/// The list of ggml's `enum ggml_type` up to 40, written out: a row lost or a number mistyped shows here.
#[test]
fn ids_are_those_of_ggml() {
    let ids: Vec<_> = FORMATS.iter().map(|f| (f.ggml_type, f.name)).collect();
    #[rustfmt::skip]
    let ggml = [
        (0, "F32"), (1, "F16"), (2, "Q4_0"), (3, "Q4_1"), (6, "Q5_0"), (7, "Q5_1"), (8, "Q8_0"), (9, "Q8_1"),
        (10, "Q2_K"), (11, "Q3_K"), (12, "Q4_K"), (13, "Q5_K"), (14, "Q6_K"), (15, "Q8_K"), (16, "IQ2_XXS"),
        (17, "IQ2_XS"), (18, "IQ3_XXS"), (19, "IQ1_S"), (20, "IQ4_NL"), (21, "IQ3_S"), (22, "IQ2_S"), (23, "IQ4_XS"),
        (24, "I8"), (25, "I16"), (26, "I32"), (27, "I64"), (28, "F64"), (29, "IQ1_M"), (30, "BF16"), (34, "TQ1_0"),
        (35, "TQ2_0"), (39, "MXFP4"), (40, "NVFP4"),
    ];
    assert_eq!(ids, ggml);
}

#[test]
fn removed_and_unknown_ids_are_told_apart() {
    for (id, name) in [
        (4, "Q4_2"),
        (5, "Q4_3"),
        (31, "Q4_0_4_4"),
        (32, "Q4_0_4_8"),
        (33, "Q4_0_8_8"),
        (36, "IQ4_NL_4_4"),
        (37, "IQ4_NL_4_8"),
        (38, "IQ4_NL_8_8"),
    ] {
        assert_eq!(Format::from_ggml_type(id), Err(TypeError::Removed { id, was: name }));
        let message = Format::from_ggml_type(id).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains(&id.to_string()), "{message}");
        assert_eq!(Format::from_name(name), None);
    }
    for id in [41, 42, 1000, u32::MAX] {
        assert_eq!(Format::from_ggml_type(id), Err(TypeError::Unknown { id }));
    }
}

#[test]
fn any_bytes_decode_and_both_instantiations_agree() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for f in FORMATS {
        for n_blocks in [0, 1, 2, 3, 7, 64, 257] {
            let mut bytes = random.bytes(n_blocks * f.block_bytes);
            for fill in [None, Some(0x00), Some(0xff)] {
                if let Some(byte) = fill {
                    bytes.fill(byte);
                }
                let widest = decoded(f.decode, f, &bytes);
                let baseline = decoded(f.decode_baseline, f, &bytes);
                let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                assert!(widest.iter().zip(&baseline).all(same), "{} {n_blocks} blocks", f.name);
            }
        }
    }
}

#[test]
fn traits_say_what_the_groups_hold() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    for f in FORMATS.iter().filter(|f| f.block_elems > 1) {
        let all = groups(f, &random.bytes(f.block_bytes * 256));
        let is_plus_zero = |m: &f32| m.to_bits() == 0;
        let symmetric = all.iter().all(|g| g.minima.iter().all(is_plus_zero));
        assert_eq!(symmetric, f.symmetric, "{}: minima", f.name);
        // One scale a half group; the scale group is the longest run of one scale in every block.
        let scales: Vec<u32> = all.iter().flat_map(|g| g.scales.map(f32::to_bits)).collect();
        let shared = |elems: usize| scales.chunks(elems / 16).all(|c| c.iter().all(|s| *s == c[0]));
        assert!(shared(f.scale_group), "{}: scales differ within {}", f.name, f.scale_group);
        assert!(!shared(2 * f.scale_group), "{}: scales do not differ within {}", f.name, 2 * f.scale_group);
    }
}

#[test]
fn encoders_take_any_values_and_are_undone_by_decoding() {
    let mut random = Random(0xfeed_beef_dead_cafe);
    for f in FORMATS {
        let Some(encode) = f.encode else { continue };
        let wild: Vec<f32> = (0..64 * f.block_elems).map(|_| f32::from_bits(random.next() as u32)).collect();
        let mut bytes = vec![0; f.bytes_of(wild.len()).unwrap()];
        encode(&wild, None, &mut bytes);
        decoded(f.decode, f, &bytes);
        // Rows of one odd value, and rows of ordinary ones with an odd value in each place of the first lanes.
        for odd in
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, -1e-45]
        {
            for place in 0..20 {
                let mut row: Vec<f32> =
                    (0..256).map(|i| if place == 0 { odd } else { i as f32 - 99.0 }).collect();
                row[place * 13] = odd;
                let mut bytes = vec![0; f.bytes_of(row.len()).unwrap()];
                encode(&row, None, &mut bytes);
                decoded(f.decode, f, &bytes);
            }
        }
        // A row of one value and its opposite, with an even number of minus signs in each eight, is exact in every format
        // that has an encoder, but for two whose highest quant stops one short of the opposite of the lowest, the levels of
        // IQ4_NL, none the opposite of another, and those of IQ1, shifted by an eighth.
        let mut tame: Vec<f32> =
            (0..512).map(|i| if i % 8 == 1 || i % 8 == 4 { -1.0 } else { 1.0 }).collect();
        tame[256..].fill(0.0);
        let mut bytes = vec![0xee; f.bytes_of(tame.len()).unwrap()];
        encode(&tame, None, &mut bytes);
        let tolerance = match f.name {
            "Q4_0" => 1.01 / 8.0,
            "Q5_0" => 1.01 / 16.0,
            "IQ4_NL" | "IQ4_XS" => 0.06,
            "IQ1_S" | "IQ1_M" => 0.2,
            _ => 1e-3,
        };
        for (place, (ours, value)) in decoded(f.decode, f, &bytes).iter().zip(&tame).enumerate() {
            assert!((ours - value).abs() <= tolerance, "{} [{place}]: {ours} for {value}", f.name);
        }
    }
}

/// Importances that no calibration gives: each must end in blocks that still say what the values are, or nearly.
#[test]
fn encoders_take_any_importance() {
    let mut random = Random(0x5eed_5eed_5eed_5eed);
    let values: Vec<f32> = (0..1024).map(|i| (i * 7919 % 2003) as f32 - 1001.0).collect();
    let odd =
        [0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45, 1e-30];
    let constant = odd.iter().map(|&w| vec![w; 512]);
    let single =
        odd.iter().flat_map(|&w| [0, 31, 300].map(|at| (0..512).map(move |i| if i == at { w } else { 1.0 })));
    let wild = (0..20).map(|_| (0..512).map(|_| f32::from_bits(random.next() as u32)).collect());
    let importances: Vec<Vec<f32>> = constant.chain(single.map(Iterator::collect)).chain(wild).collect();
    for f in FORMATS {
        let Some(encode) = f.encode else { continue };
        let written = |values: &[f32], importance: Option<&[f32]>| {
            let mut bytes = vec![0xee; f.bytes_of(values.len()).unwrap()];
            encode(values, importance, &mut bytes);
            bytes
        };
        let greatest = |bytes: &[u8]| decoded(f.decode, f, bytes).iter().fold(0f32, |a, v| a.max(v.abs()));
        for importance in &importances {
            let bytes = written(&values, Some(importance));
            let all_finite = decoded(f.decode, f, &bytes).iter().all(|v| v.is_finite());
            assert!(all_finite && greatest(&bytes) < 4000.0, "{}: {importance:?}", f.name);
        }
        // Only ratios matter; what says nothing counts as no importance where there is a search without one.
        let ones = written(&values, Some(&[1.0; 512]));
        for w in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-45, 1e-30, f32::MAX] {
            assert_eq!(written(&values, Some(&[w; 512])), ones, "{}: all {w}", f.name);
        }
        // An importance serves every row: two rows are each encoded as if alone.
        let row: Vec<f32> = (0..512).map(|i| (i % 37 + 1) as f32).collect();
        let by_row: Vec<u8> = values.chunks(512).flat_map(|values| written(values, Some(&row))).collect();
        assert_eq!(written(&values, Some(&row)), by_row, "{}", f.name);
    }
}

/// Values that lie on a format's own points are found again, or points near them.
#[test]
fn what_was_decoded_encodes_to_nearly_the_same() {
    let mut random = Random(0x0ddb_a110_ddba_11ff);
    let mut uniform = || (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0;
    let values: Vec<f32> = (0..16 * 256).map(|_| uniform() + uniform() + uniform()).collect();
    for f in FORMATS {
        let Some(encode) = f.encode else { continue };
        let again = |values: &[f32]| {
            let mut bytes = vec![0xee; f.bytes_of(values.len()).unwrap()];
            encode(values, None, &mut bytes);
            decoded(f.decode, f, &bytes)
        };
        let first = again(&values);
        let second = again(&first);
        let square = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
        let moved = (square(&first, &second) / square(&values, &first).max(1e-9)).sqrt();
        println!("{:8} {moved:.4} of the first error", f.name);
        assert!(moved < 0.2, "{}: {moved} of the first error", f.name);
    }
}

#[test]
#[should_panic(expected = "are not whole rows of")]
fn an_importance_of_the_wrong_length_is_refused() {
    format("Q4_K").encode.unwrap()(&[0.0; 512], Some(&[1.0; 768]), &mut [0; 288]);
}

#[test]
fn sizes_are_whole_blocks_and_do_not_overflow() {
    for f in FORMATS {
        assert_eq!(f.bytes_of(0), Some(0));
        assert_eq!(f.bytes_of(3 * f.block_elems), Some(3 * f.block_bytes));
        if f.block_elems > 1 {
            assert_eq!(f.bytes_of(f.block_elems + 1), None, "{}", f.name);
        }
        let most = usize::MAX / f.block_elems * f.block_elems;
        let bytes = (most as u128 / f.block_elems as u128) * f.block_bytes as u128;
        assert_eq!(f.bytes_of(most).map(|n| n as u128), Some(bytes).filter(|&n| n <= usize::MAX as u128));
    }
    assert_eq!(format("F32").bytes_of(usize::MAX), None);
}

#[test]
#[should_panic(expected = "are not the blocks of")]
fn a_row_of_the_wrong_length_is_refused() {
    (format("Q4_K").decode)(&[0; 143], &mut [0.0; 256]);
}

/// `ggml_quantize_requires_imatrix` of ggml.c.
#[test]
fn what_ggml_writes_with_an_importance_only_needs_one() {
    let needing: Vec<_> = FORMATS.iter().filter(|f| f.needs_importance).map(|f| f.name).collect();
    assert_eq!(needing, ["IQ2_XXS", "IQ2_XS", "IQ1_S"]);
}
