//! Windows, means, likelihoods and percentiles.

use super::{divergence::percentiles, *};

fn scored(windows: &Windows, window: usize) -> Vec<u32> {
    windows.text(window)[windows.scored.start + 1..windows.scored.end + 1].to_vec()
}

#[test]
fn windows_lie_side_by_side_and_their_second_half_is_scored() {
    let windows = Windows::side_by_side((0..35).collect(), 8, None, Some(99)).unwrap();
    assert_eq!((windows.len(), windows.size(), windows.n_scored()), (4, 8, 3));
    assert_eq!(windows.read(1), [99, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(scored(&windows, 1), [13, 14, 15]);
    assert_eq!(windows.tokens().len(), 32);
    let odd = Windows::side_by_side((0..14).collect(), 7, Some(9), None).unwrap();
    assert_eq!((odd.len(), odd.read(1)[0]), (2, 7));
    assert_eq!(scored(&odd, 0), [4, 5, 6]);
    let few = Windows::side_by_side((0..35).collect(), 8, Some(1), None).unwrap();
    assert_eq!((few.len(), few.tokens().len()), (1, 8));
}

#[test]
fn with_a_stride_every_token_is_scored_once() {
    let windows = Windows::strided((0..30).collect(), 10, 4, None, None).unwrap();
    let all: Vec<u32> = (0..windows.len()).flat_map(|window| scored(&windows, window)).collect();
    assert_eq!(all, (6..26).collect::<Vec<_>>());
    // The last window may not reach over the end.
    for n_tokens in 20..60 {
        let windows = Windows::strided((0..n_tokens).collect(), 10, 7, None, None).unwrap();
        assert!(scored(&windows, windows.len() - 1).len() == 7);
    }
}

#[test]
fn impossible_windows_are_refused() {
    let refused = |windows: Result<Windows>| windows.unwrap_err().to_string();
    assert!(refused(Windows::side_by_side(vec![0; 100], 3, None, None)).contains("too short"));
    assert!(refused(Windows::side_by_side(vec![0; 15], 8, None, None)).contains("15 tokens"));
    assert!(refused(Windows::side_by_side(vec![0; 16], 8, Some(0), None)).contains("no window"));
    assert!(refused(Windows::strided(vec![0; 16], 8, 0, None, None)).contains("stride 0"));
    assert!(refused(Windows::strided(vec![0; 16], 8, 8, None, None)).contains("stride 8"));
}

#[test]
fn parts_cover_a_range() {
    assert_eq!(parts(3..10, 4).collect::<Vec<_>>(), [3..7, 7..10]);
    assert_eq!(parts(0..2, 0).collect::<Vec<_>>(), [0..1, 1..2]);
    assert_eq!(parts(5..5, 4).count(), 0);
}

#[test]
fn means_have_their_standard_error() {
    let mut mean = Mean::default();
    assert_eq!(mean.estimate(), Estimate::default());
    [1.0, 2.0, 3.0, 4.0].iter().for_each(|&x| mean.add(x));
    // The variance of the values is 5/4, and 5/12 of the mean of three of four.
    let Estimate { value, error } = mean.estimate();
    assert!((value - 2.5).abs() < 1e-12 && (error - (1.25f64 / 3.0).sqrt()).abs() < 1e-12);
    let ppl = mean.perplexity();
    assert!((ppl.value - 2.5f64.exp()).abs() < 1e-9 && (ppl.error / ppl.value - error).abs() < 1e-12);
}

#[test]
fn likelihoods_need_finite_logits() {
    let parallel = Parallel::new(Some(2)).unwrap();
    let score = |logits: &[f32]| {
        surprises(&parallel, &Scored { window: 4, ends_window: true, next: &[0, 1], logits })
    };
    let nll = score(&[0.0, 0.0, 1e4, -1e4]).unwrap();
    assert!((nll[0] - 2f64.ln()).abs() < 1e-7 && (nll[1] - 2e4).abs() < 1e-3, "{nll:?}");
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert!(score(&[0.0, 0.0, bad, 0.0]).unwrap_err().to_string().contains("window 5"));
    }
}

#[test]
fn percentiles_lie_between_values() {
    let of = |values: &[f32], percent: f64| percentiles(values, &[percent])[0].value;
    let values = [4.0, 1.0, 3.0, 2.0];
    assert_eq!([0.0, 50.0, 100.0].map(|p| of(&values, p)), [1.0, 2.5, 4.0]);
    assert!((of(&values, 10.0) - 1.3).abs() < 1e-9);
    assert_eq!(of(&[], 50.0), 0.0);
    assert_eq!(of(&[7.0], 99.9), 7.0);
}
