//! Random arrivals, growth and ends: no block is owned twice, none is lost, visible positions stay.

use super::*;
use crate::testing::{Rng, tiny_spec};

#[test]
fn random_traffic_keeps_every_block_once() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let (context, max_rows) = (300, 70);
        let mut cache = Cache::new(&tiny_spec(&[None, Some(40), Some(7)]), context, 3, max_rows);
        assert_eq!(cache.groups().len(), 3);
        let mut live: Vec<SequenceId> = Vec::new();
        for _ in 0..400 {
            match rng.below(4) {
                0 if live.len() < 3 => live.push(cache.begin()),
                1 if !live.is_empty() => cache.end(live.swap_remove(rng.below(live.len()))),
                _ if !live.is_empty() => {
                    let id = live[rng.below(live.len())];
                    let rows = 1 + rng.below(max_rows);
                    let before = cache.len(id);
                    match cache.grow(id, rows) {
                        Ok(()) => check_visible(&cache, id, before),
                        Err(_) => assert!(before + rows > context, "room was promised for {}", before + rows),
                    }
                }
                _ => {}
            }
            cache.check_integrity().unwrap();
        }
    }
}

/// Every position that a new row sees lies in a block that the sequence owns: they differ from each other.
fn check_visible(cache: &Cache, id: SequenceId, before: usize) {
    for (i, group) in cache.groups().iter().enumerate() {
        let begin = match group.kind {
            CacheKind::Full => 0,
            CacheKind::Window(window) => (before + 1).saturating_sub(window),
        };
        let table = cache.table(id, i);
        let mut visible: Vec<u32> = table[begin / KV_BLOCK..cache.len(id).div_ceil(KV_BLOCK)].to_vec();
        let n = visible.len();
        visible.sort_unstable();
        visible.dedup();
        assert_eq!(visible.len(), n, "two logical blocks share a physical one");
    }
}

#[test]
fn a_window_holds_few_blocks() {
    let mut cache = Cache::new(&tiny_spec(&[Some(40)]), 100_000, 1, 10);
    assert!(cache.groups()[0].pool.n_blocks() <= 4);
    let id = cache.begin();
    for _ in 0..9_000 {
        cache.grow(id, 10).unwrap();
    }
    cache.check_integrity().unwrap();
}

#[test]
fn a_failed_growth_changes_nothing() {
    let mut cache = Cache::new(&tiny_spec(&[None]), 64, 1, 64);
    let id = cache.begin();
    cache.grow(id, 60).unwrap();
    let error = cache.grow(id, 5).unwrap_err().to_string();
    assert!(error.contains("65 tokens do not fit the context of 64"), "{error}");
    assert_eq!(cache.len(id), 60);
    cache.grow(id, 4).unwrap();
    cache.check_integrity().unwrap();
}
