//! Eight rows side by side against the scalar decoder of one, for every format: the interleaved layout loses nothing,
//! and the formats' functions give the bits of `unpack`.

use hanzo_quant::{
    ActivationRow, FORMATS, Format, GROUP, LANES, PANEL_ELEMS, PANEL_GROUPS, Panel, Refinement, Stretch,
    Unpack,
};

/// Marsaglia's xorshift64, for bytes that are the same in every run.
struct Random(u64);

impl Random {
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        let next = |state: &mut u64| {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            (*state >> 32) as u8
        };
        (0..n).map(|_| next(&mut self.0)).collect()
    }
}

fn interleave(format: &Format, rows: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0xee; rows[0].len() * LANES];
    let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    format.interleave(&rows, &mut out);
    out
}

/// A value that differs from what any decoder gives, so that what is not written shows.
fn stale() -> Panel {
    let mut panel = Panel::ZERO;
    panel.quants = [[0xdead_beef; LANES]; PANEL_ELEMS / 4];
    panel.scales = [[[-77.0; LANES]; 2]; PANEL_ELEMS / GROUP];
    panel.minima = panel.scales;
    panel
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

/// Compares `n_rows` lanes of a panel with `unpack`.
fn check(format: &Format, rows: &[Vec<u8>], panel: &Panel, offset: u8, max: u8) {
    let Unpack::Int(unpack) = format.unpack else { panic!("{format:?}") };
    let halves = if format.scale_group < GROUP { 2 } else { 1 };
    for (lane, row) in rows.iter().enumerate() {
        let groups_of = |block| (0..format.block_elems / GROUP).map(move |g| unpack(block, g));
        for (g, group) in row.chunks(format.block_bytes).flat_map(groups_of).enumerate() {
            let place = format!("{format:?}, row {lane}, group {g}");
            for (i, quant) in group.quants.into_iter().enumerate() {
                let ours = panel.quants[8 * g + i / 4][lane].to_le_bytes()[i % 4];
                assert_eq!(i32::from(ours), i32::from(quant) + i32::from(offset), "{place}, quant {i}");
                assert!(ours <= max, "{place}, quant {i}: {ours} is more than {max}");
            }
            for half in 0..halves {
                let (ours, scale) = (panel.scales[g][half][lane], group.scales[half]);
                assert!(same(ours, scale), "{place}, half {half}: scale {ours} for {scale}");
                let (ours, minimum) = (panel.minima[g][half][lane], group.minima[half]);
                assert!(format.symmetric || same(ours, minimum), "{place}: minimum {ours} for {minimum}");
            }
        }
    }
}

fn integer_formats() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().filter(|f| matches!(f.unpack, Unpack::Int(_)))
}

#[test]
fn panels_hold_what_unpack_gives() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut n_fast = 0;
    for f in integer_formats() {
        for round in 0..40 {
            let n_blocks = 1 + round % (PANEL_ELEMS / f.block_elems);
            let n_rows = if round % 3 == 0 { 1 + round % LANES } else { LANES };
            let rows: Vec<_> = (0..n_rows).map(|_| random.bytes(n_blocks * f.block_bytes)).collect();
            let slices: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            let mut panel = stale();
            f.fill_scalar(&slices, &mut panel);
            check(f, &rows, &panel, 128, 255);
            let Some(fast) = &f.panel else { continue };
            n_fast += 1;
            let blocks = interleave(f, &rows);
            for fill in [fast.fill, fast.fill_baseline] {
                let mut panel = stale();
                fill(&blocks, &mut panel);
                check(f, &rows, &panel, fast.offset, fast.max);
            }
        }
    }
    assert!(n_fast >= 25 * 40);
}

/// Every kind of half float, and every byte, in every place of a block.
#[test]
fn extreme_bytes_are_no_exception() {
    for f in integer_formats() {
        let Some(fast) = &f.panel else { continue };
        for byte in [0x00, 0xff, 0x80, 0x7f, 0x7c, 0xfc, 0x01, 0x03] {
            for other in [0x00, 0xff, 0x7c] {
                let row = |lane: usize| {
                    (0..f.block_bytes).map(move |i| if (i + lane).is_multiple_of(3) { other } else { byte })
                };
                let rows: Vec<Vec<u8>> = (0..LANES).map(|lane| row(lane).collect()).collect();
                for fill in [fast.fill, fast.fill_baseline] {
                    let mut panel = stale();
                    fill(&interleave(f, &rows), &mut panel);
                    check(f, &rows, &panel, fast.offset, fast.max);
                }
            }
        }
    }
}

/// A stretch of random signed bytes.
fn stretch(random: &mut Random) -> Stretch {
    let mut stretch = Stretch::ZERO;
    let quants: Vec<i8> = random.bytes(PANEL_ELEMS).into_iter().map(|q| (q as i8).max(-127)).collect();
    for (word, q) in stretch.quants.iter_mut().zip(quants.chunks(4)) {
        *word = u32::from_le_bytes([q[0] as u8, q[1] as u8, q[2] as u8, q[3] as u8]);
    }
    for (i, q) in quants.chunks(GROUP).enumerate() {
        let sum = |q: &[i8]| q.iter().map(|q| i32::from(*q)).sum::<i32>();
        stretch.scales[i] = f32::from(random.bytes(1)[0]) / 1024.0;
        stretch.quant_sums[i] = [sum(&q[..GROUP / 2]), sum(&q[GROUP / 2..]), sum(q)];
        stretch.sums[i] = stretch.quant_sums[i].map(|sum| stretch.scales[i] * sum as f32);
    }
    stretch
}

/// The definition of a product: groups in ascending order, exact integer sums, refinements apart.
fn product(format: &Format, row: &[u8], x: ActivationRow<'_>) -> f32 {
    let Unpack::Int(unpack) = format.unpack else { panic!("{format:?}") };
    let (mut main, mut rest) = (0f32, 0f32);
    let groups_of = |block| (0..format.block_elems / GROUP).map(move |g| unpack(block, g));
    let halves: &[(usize, usize)] =
        if format.scale_group < GROUP { &[(0, 16), (16, 32)] } else { &[(0, 32)] };
    for (g, group) in row.chunks(format.block_bytes).flat_map(groups_of).enumerate() {
        let (idx, at) = (g / PANEL_GROUPS, g % PANEL_GROUPS);
        let add = |x: &Stretch, acc: &mut f32| {
            let a = x.quants.map(u32::to_le_bytes);
            for (half, &(start, end)) in halves.iter().enumerate() {
                let part = if halves.len() == 1 { Stretch::WHOLE } else { half };
                let a = &a.as_flattened()[GROUP * at..];
                let sum: i32 = (start..end).map(|i| i32::from(group.quants[i]) * i32::from(a[i] as i8)).sum();
                *acc = (sum as f32).mul_add(group.scales[half] * x.scales[at], *acc);
                if !format.symmetric {
                    *acc = (-group.minima[half]).mul_add(x.sums[at][part], *acc);
                }
            }
        };
        add(&x.stretches[idx * x.n_rows + x.row], &mut main);
        for r in x.refinements.iter().filter(|r| (r.stretch, r.row) == (idx, x.row)) {
            if r.blocks >> at & 1 != 0 {
                add(&r.rest, &mut rest);
            }
        }
    }
    main + rest
}

#[test]
fn products_of_one_row_are_the_definition_bit_for_bit() {
    let mut random = Random(0x5851_f42d_4c95_7f2d);
    for f in integer_formats() {
        let fast = f.panel.as_ref().unwrap();
        for round in 0..12 {
            let n_blocks = PANEL_ELEMS / f.block_elems * 3 - round % (PANEL_ELEMS / f.block_elems);
            let rows: Vec<_> = (0..LANES).map(|_| random.bytes(n_blocks * f.block_bytes)).collect();
            let n_rows = 1 + round % 3;
            let stretches: Vec<_> = (0..3 * n_rows).map(|_| stretch(&mut random)).collect();
            let refinements: Vec<_> = [0, 2]
                .iter()
                .flat_map(|&stretch| (0..n_rows).map(move |row| (stretch, row)))
                .map(|(idx, row)| Refinement {
                    stretch: idx,
                    row,
                    blocks: u32::from(random.bytes(1)[0]),
                    rest: stretch(&mut random),
                })
                .collect();
            let row = n_rows - 1;
            let x = ActivationRow { stretches: &stretches, n_rows, row, refinements: &refinements };
            let blocks = interleave(f, &rows);
            for (name, of) in [("widest", fast.product), ("baseline", fast.product_baseline)] {
                for (lane, ours) in of(&blocks, x).into_iter().enumerate() {
                    let want = product(f, &rows[lane], x);
                    assert!(same(ours, want), "{f:?}, {name}, row {lane}: {ours} for {want}");
                }
            }
        }
    }
}

/// Asymmetric formats have unsigned quants already, so that products never need both an offset and minima.
#[test]
fn an_offset_and_minima_exclude_each_other() {
    for f in integer_formats() {
        if let Some(fast) = &f.panel {
            assert!(f.symmetric || fast.offset == 0, "{f:?}");
        }
    }
}

#[test]
fn interleaving_moves_every_byte_to_its_place() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    for f in FORMATS {
        for n_rows in [1, 3, LANES] {
            let rows: Vec<_> = (0..n_rows).map(|_| random.bytes(3 * f.block_bytes)).collect();
            let blocks = interleave(f, &rows);
            let mut rows = rows;
            if let Some(arrange) = f.panel.and_then(|panel| panel.arrange) {
                rows.iter_mut().flat_map(|row| row.chunks_mut(f.block_bytes)).for_each(arrange);
            }
            for (block, bytes) in blocks.chunks(LANES * f.block_bytes).enumerate() {
                let mut at = 0;
                for field in f.fields {
                    let piece = match field.bytes % 4 {
                        0 => 4,
                        2 => 2,
                        _ => 1,
                    };
                    for i in 0..field.bytes {
                        for lane in 0..LANES {
                            let ours = bytes[LANES * at + (i / piece * LANES + lane) * piece + i % piece];
                            let want = rows.get(lane).map_or(0, |row| row[block * f.block_bytes + at + i]);
                            assert_eq!(ours, want, "{f:?} {} byte {i}, row {lane}", field.name);
                        }
                    }
                    at += field.bytes;
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "are not at most 256 elements")]
fn a_part_of_a_block_is_refused() {
    let format = Format::from_name("Q4_K").unwrap();
    (format.panel.unwrap().fill)(&[0; 144 * LANES - 1], &mut Panel::ZERO.clone());
}
