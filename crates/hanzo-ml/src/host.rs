//! The memory of the machine that the program runs on, as its system tells.

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use crate::backend::MemoryInfo;

/// The machine's memory, or that of the container where it is less; `None` where the system does not tell. In a container,
/// pages of files count as free: the system gives them away where they are needed.
pub fn memory() -> Option<MemoryInfo> {
    let kinds = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(kinds).ok()?;
    let (mut total, mut free) = (system.total_memory(), system.available_memory());
    if let Some(limits) = system.cgroup_limits() {
        total = total.min(limits.total_memory);
        free = free.min(limits.total_memory.saturating_sub(limits.rss));
    }
    let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    Some(MemoryInfo { free: bytes(free), total: bytes(total) }).filter(|memory| memory.total > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_that_of_a_machine() {
        if let Some(MemoryInfo { free, total }) = memory() {
            assert!(free <= total && total > 64 << 20, "{free} of {total}");
        }
    }
}
