//! What a runtime owns, by numbers that only it can have given out.
//!
//! A number names a table, a place in it and how often the place was used before, so that one that was given back, that
//! was made up, or that is another device's finds nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a place, and as many of its age; the rest is the table's.
const BITS: u32 = 24;
const MASK: u64 = (1 << BITS) - 1;

/// Values by number.
pub(super) struct Table<T> {
    /// The table's own number, in the bits above place and age.
    tag: u64,
    slots: Vec<Slot<T>>,
    vacant: Vec<usize>,
}

struct Slot<T> {
    age: u64,
    value: Option<T>,
}

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        static N_TABLES: AtomicU64 = AtomicU64::new(1);
        let tag = N_TABLES.fetch_add(1, Ordering::Relaxed) << (2 * BITS);
        Self { tag, slots: Vec::new(), vacant: Vec::new() }
    }

    /// Keeps a value and gives its number.
    pub(super) fn insert(&mut self, value: T) -> u64 {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot { age: 0, value: None });
            self.slots.len() - 1
        });
        assert!(place as u64 <= MASK, "more than {MASK} things of a device at the same time");
        let slot = &mut self.slots[place];
        slot.value = Some(value);
        self.tag | slot.age << BITS | place as u64
    }

    fn place(&self, id: u64) -> Option<usize> {
        let place = (id & MASK) as usize;
        let slot = self.slots.get(place)?;
        (id & !MASK == self.tag | slot.age << BITS && slot.value.is_some()).then_some(place)
    }

    pub(super) fn get(&self, id: u64) -> Option<&T> {
        self.slots[self.place(id)?].value.as_ref()
    }

    /// Takes a value out; its number means nothing from now on.
    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        let place = self.place(id)?;
        self.vacant.push(place);
        let slot = &mut self.slots[place];
        slot.age = (slot.age + 1) & MASK;
        slot.value.take()
    }

    /// Everything that is left.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_finds_what_it_was_given_for_and_nothing_else() {
        let (mut a, mut b) = (Table::new(), Table::new());
        let (first, second) = (a.insert("first"), a.insert("second"));
        let foreign = b.insert("foreign");
        assert_eq!((a.get(first), a.get(second), a.get(foreign)), (Some(&"first"), Some(&"second"), None));
        assert_eq!((a.get(0), a.get(1), a.get(u64::MAX)), (None, None, None));
        assert_eq!((a.remove(first), a.remove(first)), (Some("first"), None));
        let third = a.insert("third");
        assert_eq!((a.get(first), a.get(third)), (None, Some(&"third")));
        assert_eq!(a.values().copied().collect::<Vec<_>>(), ["third", "second"]);
    }
}
